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

/// The times at which one rank arrived at successive collectives, in nanoseconds of the job's time.
using Arrivals = std::vector<std::int64_t>;

/// The rank that delayed the others most.
struct MostDelayed {
  int rank = 0;
  std::size_t last_in = 0;      ///< Number of collectives at which it arrived last.
  std::size_t collectives = 0;  ///< Number of all collectives.
  double behind = 0;            ///< Mean nanoseconds after the second last rank, where it was last.
  double waited = 0;  ///< Mean nanoseconds that all others together waited for it, where it was last.
};

/// Finds the rank whose delays, summed over the collectives, are greatest. `ranks`: all ranks' arrivals, the
/// same number each. Ranks that arrive at the same time are not late. Rank 0, with `last_in` 0, if none was
/// late.
MostDelayed most_delayed(std::span<const Arrivals> ranks);

/// Text about the reductions since the last dump. `host`: of the most delayed rank. `clock_error`: the
/// greatest error of any rank's clock, in nanoseconds.
std::vector<std::string> dump_lines(std::uint64_t step, std::uint64_t steps, const MostDelayed& delayed,
                                    const std::string& host, std::int64_t clock_error,
                                    const std::vector<collectives::PlanFigures>& plans);

/// The differences of the figures `now` and `before`, without plans that have not been used since.
std::vector<collectives::PlanFigures> since(const std::vector<collectives::PlanFigures>& before,
                                            std::vector<collectives::PlanFigures> now);

/// `-dump_iter`: logs which rank was late and how the time was spent, every `every` steps of a gradient
/// reducer. Used by one thread at a time.
class StepDump {
 public:
  /// `every` > 0.
  StepDump(const Context& context, RunObserver& observer, int every);

  /// This rank has arrived at a reduction.
  void arrived();
  /// A step is over on all ranks. Collective.
  void step_over();

 private:
  void dump();

  Context context_;
  RunObserver& observer_;
  std::uint64_t every_;
  std::uint64_t steps_ = 0;
  std::uint64_t arrived_ = 0;          // since the last dump
  std::deque<std::int64_t> arrivals_;  // the newest ones, by this rank's clock
  std::vector<collectives::PlanFigures> before_;
};

}  // namespace ddl
