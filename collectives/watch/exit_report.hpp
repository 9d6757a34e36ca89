#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/watch/flight_recorder.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

/// Why a job ends.
struct JobFailure {
  enum class Kind : std::uint8_t {
    died,     ///< A rank's process is gone.
    threw,    ///< A rank gave up, for reasons of its own.
    stuck,    ///< A collective passed its deadline.
    differs,  ///< Ranks called different things.
    network,  ///< A connection between ranks broke, or refused to work.
  };
  Kind kind = Kind::threw;
  int rank = -1;     ///< Who died, gave up, or noticed.
  std::string text;  ///< One line.
  /// The collective that it is about; sequence 0: none.
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;
};

std::string_view to_string(JobFailure::Kind kind) noexcept;
/// What a rank's own error means to the others.
JobFailure::Kind failure_kind(ErrorCode code) noexcept;

/// What one rank was about when the job failed.
struct RankReport {
  enum class Life : std::uint8_t {
    answers,
    silent,  ///< Does not answer: stopped, swapped out, or out of reach.
    dead,
    left,  ///< Has left the job in order.
  };
  int rank = -1;
  std::string host;
  std::int64_t pid = 0;
  Life life = Life::silent;
  std::string scope;                   ///< What it is doing, if that has a name ("starting: ...").
  std::optional<FlightRecord> inside;  ///< Its oldest collective that is not over.
  std::optional<FlightRecord> last;    ///< Its newest that is.
  std::optional<FlightRecord> same;    ///< What it called as the collective that the failure is about.
  std::string waits_for;               ///< Which messages of whom.
};

std::string_view to_string(RankReport::Life life) noexcept;
/// "rank 3 (host a, pid 17)".
std::string name_of(const RankReport& report);

/// How far each rank had come when the job failed, and who is to blame: for people, and for programs.
struct ExitReport {
  JobFailure failure;
  std::vector<RankReport> ranks;  ///< By rank.
  std::string scope;              ///< Whom it covers, if that is not all.

  /// Some lines, without a line's end at the last.
  [[nodiscard]] std::string text() const;
  /// One object.
  [[nodiscard]] std::string json() const;
};

/// A deadline that passes because ranks have called different things: says so. Drops what ranks say of other
/// calls than the one that failed.
void find_differences(ExitReport& report);

/// What a tape says of its rank.
void describe_calls(RankReport& report, const std::vector<FlightRecord>& records, const JobFailure& failure);

/// To send them to another rank; `parse` throws `corrupt_data` for what is no such thing.
std::string to_message(const JobFailure& failure);
JobFailure parse_failure(std::string_view message);
ExitReport parse_report(std::string_view json);

}  // namespace ddl::collectives
