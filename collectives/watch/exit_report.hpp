#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/watch/flight_recorder.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

struct JobFailure {
  enum class Kind : std::uint8_t {
    died,     ///< A rank's process is gone.
    threw,    ///< A rank gave up because of an error of its own.
    stuck,    ///< A collective passed its deadline.
    differs,  ///< Ranks made different calls.
    network,  ///< A connection between ranks broke or could not be made.
  };
  Kind kind = Kind::threw;
  int rank = -1;     ///< The rank that died, gave up, or noticed the failure.
  std::string text;  ///< A single line.
  /// The collective that failed; sequence 0 means none.
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;
};

std::string_view to_string(JobFailure::Kind kind) noexcept;
/// How an error with this code on one rank is reported to the other ranks.
JobFailure::Kind failure_kind(ErrorCode code) noexcept;

/// What one rank was doing when the job failed.
struct RankReport {
  enum class Life : std::uint8_t {
    answers,
    silent,  ///< Does not answer: stopped, swapped out, or unreachable.
    dead,
    left,  ///< Left the job normally.
  };
  int rank = -1;
  std::string host;
  std::int64_t pid = 0;
  Life life = Life::silent;
  std::string scope;                   ///< The named activity that the rank is in ("starting: ..."), if any.
  std::optional<FlightRecord> inside;  ///< Its oldest collective that has not finished.
  std::optional<FlightRecord> last;    ///< Its newest finished collective.
  std::optional<FlightRecord> same;    ///< Its call with the number of the failed collective.
  std::string waits_for;               ///< The messages that it waits for, and from whom.
};

std::string_view to_string(RankReport::Life life) noexcept;
/// "rank 3 (host a, pid 17)".
std::string name_of(const RankReport& report);

using RankStatements = std::vector<std::pair<std::string, int>>;
/// The ranks of equal statements, in the order in which the statements first appear.
std::vector<std::pair<std::string, std::vector<int>>> grouped(const RankStatements& statements);

/// How far each rank had come when the job failed, and which rank failed.
struct ExitReport {
  JobFailure failure;
  std::vector<RankReport> ranks;  ///< Indexed by rank, if the report covers the job.
  std::string scope;              ///< Which ranks it covers, if not all.

  /// For people: several lines, without a newline at the end.
  [[nodiscard]] std::string text() const;
  /// For programs: one JSON object.
  [[nodiscard]] std::string json() const;
};

/// Changes a `stuck` failure to `differs` if the ranks made different calls. Drops `same` records that are
/// not of the failed collective.
void find_differences(ExitReport& report);

/// Fills `inside`, `last` and `same` from a rank's flight records.
void describe_calls(RankReport& report, const std::vector<FlightRecord>& records, const JobFailure& failure);

/// Serialize for another rank. The parsers throw `corrupt_data` for malformed text.
std::string to_message(const JobFailure& failure);
JobFailure parse_failure(std::string_view message);
ExitReport parse_report(std::string_view json);

}  // namespace ddl::collectives
