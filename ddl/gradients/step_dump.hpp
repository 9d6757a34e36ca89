#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "collectives/timeline/run_statistics.hpp"
#include "ddl/context.hpp"
#include "ddl/timeline/run_observer.hpp"

namespace ddl {

/// When one rank came to each of a number of collectives, in nanoseconds of the job's time.
using Arrivals = std::vector<std::int64_t>;

/// Who made the others wait.
struct MostDelayed {
  int rank = 0;
  std::size_t last_in = 0;      ///< Collectives to which it came last.
  std::size_t collectives = 0;  ///< Of so many.
  double behind = 0;            ///< Nanoseconds after the one before it, on average where it was last.
  double waited = 0;            ///< Nanoseconds that the others waited for it together, on average there.
};

/// Of all ranks' arrivals, by rank, as many each: the rank without which the collectives would have begun the
/// most earlier. Ranks that come at one time are not late. Rank 0 in 0 of them if nobody was.
MostDelayed most_delayed(std::span<const Arrivals> ranks);

/// Lines for people about the reductions since the lines before. `host_of`: of the most delayed rank.
/// `clock_error`: of the worst of the ranks' clocks, in nanoseconds.
std::vector<std::string> dump_lines(std::uint64_t step, std::uint64_t steps, const MostDelayed& delayed,
                                    const std::string& host, std::int64_t clock_error,
                                    const std::vector<collectives::PlanFigures>& plans);

/// `now` without what `before` has.
std::vector<collectives::PlanFigures> since(const std::vector<collectives::PlanFigures>& before,
                                            std::vector<collectives::PlanFigures> now);

/// `-dump_iter`: who was late, and where the time went, every so many steps of a gradient reducer. Used by
/// one thread at a time.
class StepDump {
 public:
  /// `every` > 0.
  StepDump(const Context& context, RunObserver& observer, int every);

  /// This rank's part of a reduction is there.
  void arrived();
  /// A step is over, on all ranks. Collective.
  void step_over();

 private:
  void dump();

  Context context_;
  RunObserver& observer_;
  std::uint64_t every_;
  std::uint64_t steps_ = 0;
  std::uint64_t arrived_ = 0;          // since the last dump
  std::deque<std::int64_t> arrivals_;  // the newest of them, by this rank's clock
  std::vector<collectives::PlanFigures> before_;
};

}  // namespace ddl
