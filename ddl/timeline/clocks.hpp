#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl {

/// Gathers every rank's value without needing a plan. Collective.
std::vector<std::int64_t> all_values(collectives::CommunicatorImpl& communicator, std::int64_t own);

/// Sends every rank's text to rank 0, which calls `take` with pieces of at most 1 MiB, in the order of ranks.
/// Other ranks do not call `take`. Collective.
void gather_texts(collectives::CommunicatorImpl& communicator, std::string_view text,
                  const std::function<void(int rank, std::string_view piece)>& take);

/// Converts `Ticks` to nanoseconds of `Clock`, by a line through two moments at which it has read both.
class TickClock {
 public:
  TickClock() noexcept : first_(now()), last_(first_) {}
  /// Reads both clocks. Conversions are most precise between the construction and the last call.
  void look() noexcept { last_ = now(); }
  [[nodiscard]] std::int64_t nanoseconds(std::uint64_t ticks) const noexcept;

 private:
  struct Moment {
    std::uint64_t ticks;
    std::int64_t nanoseconds;
  };
  static Moment now() noexcept;

  Moment first_, last_;
};

/// A request and its answer, in nanoseconds: `sent` and `returned` by the requester's clock, `came` and
/// `answered` by the other clock.
struct RoundTrip {
  std::int64_t sent = 0;
  std::int64_t came = 0;
  std::int64_t answered = 0;
  std::int64_t returned = 0;

  [[nodiscard]] std::int64_t under_way() const noexcept { return (returned - sent) - (answered - came); }
};

/// The offset of a clock to rank 0's, in nanoseconds.
struct ClockOffset {
  std::int64_t at = 0;     ///< Time of the comparison, by this clock.
  std::int64_t ahead = 0;  ///< This clock minus rank 0's.
  std::int64_t error = 0;  ///< The largest possible error of `ahead`.
};

/// The offset by the fastest round trip. `trips` must not be empty.
ClockOffset offset_by(std::span<const RoundTrip> trips);

/// Converts this rank's clock to the job's time, nanoseconds since the first comparison by rank 0's clock.
class JobClock {
 public:
  /// `clock_of`: for each rank, the lowest rank that reads the same clock.
  explicit JobClock(std::vector<int> clock_of) : clock_of_(std::move(clock_of)) {}

  /// Compares all clocks with rank 0's. Collective; 24 sequential round trips for each other clock.
  void compare(collectives::CommunicatorImpl& communicator);

  /// `own`: nanoseconds of this rank's clock. Interpolates the offset linearly between comparisons.
  [[nodiscard]] std::int64_t job_time(std::int64_t own) const noexcept;
  /// The largest error of this rank's comparisons; 0 if it reads rank 0's clock.
  [[nodiscard]] std::int64_t error() const noexcept;

 private:
  std::vector<int> clock_of_;
  std::vector<ClockOffset> offsets_;    // of this rank's clock, oldest first
  std::optional<std::int64_t> origin_;  // rank 0's clock at the first comparison
};

}  // namespace ddl
