#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl {

/// Every rank's value, by rank, without a plan. Collective.
std::vector<std::int64_t> all_values(collectives::CommunicatorImpl& communicator, std::int64_t own);

/// Gives rank 0 every rank's text: `take` is called there with pieces of at most 1 MiB, rank by rank, in
/// order. Collective; no rank but 0 calls `take`.
void gather_texts(collectives::CommunicatorImpl& communicator, std::string_view text,
                  const std::function<void(int rank, std::string_view piece)>& take);

/// Turns `Ticks` into nanoseconds of `Clock`, by two moments that it has seen by both.
class TickClock {
 public:
  TickClock() noexcept : first_(now()), last_(first_) {}
  /// Sees the present; what lies between is most exact.
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

/// A question and its answer, in nanoseconds: the asker's clock says when it was sent and came back, the
/// other one's when it came and was answered.
struct RoundTrip {
  std::int64_t sent = 0;
  std::int64_t came = 0;
  std::int64_t answered = 0;
  std::int64_t returned = 0;

  [[nodiscard]] std::int64_t under_way() const noexcept { return (returned - sent) - (answered - came); }
};

/// How far a clock was ahead of rank 0's.
struct ClockOffset {
  std::int64_t at = 0;  ///< By that clock.
  std::int64_t ahead = 0;
  std::int64_t error = 0;  ///< It is off by so much at most.
};

/// By the quickest one. Not of none.
ClockOffset offset_by(std::span<const RoundTrip> trips);

/// The job's time: nanoseconds since rank 0's clock was first compared.
class JobClock {
 public:
  /// `clock_of`: for each rank, the lowest one that reads the same clock.
  explicit JobClock(std::vector<int> clock_of) : clock_of_(std::move(clock_of)) {}

  /// Compares all clocks with rank 0's. Collective; 2 messages 24 times for each clock but rank 0's, one
  /// after the other.
  void compare(collectives::CommunicatorImpl& communicator);

  /// `own`: nanoseconds of this rank's clock. Between two comparisons offsets change evenly, outside not at
  /// all.
  [[nodiscard]] std::int64_t job_time(std::int64_t own) const noexcept;
  /// Of this rank's clock, at the worse of its comparisons; 0 if it is rank 0's.
  [[nodiscard]] std::int64_t error() const noexcept;

 private:
  std::vector<int> clock_of_;
  std::vector<ClockOffset> offsets_;    // of this rank's, oldest first
  std::optional<std::int64_t> origin_;  // by rank 0's clock
};

}  // namespace ddl
