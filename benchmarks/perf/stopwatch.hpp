#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ddl/communicator.hpp"
#include "perf/machine.hpp"

namespace perf {

/// Of one call, in us.
struct Times {
  double median = 0;
  double least = 0;
  int repeated = 0;  ///< Iterations that were; see Repetitions.
};

struct Repetitions {
  int warm_up = 5;
  int iterations = 20;
  int calls = 1;  ///< In an iteration.
  /// An iteration is repeated, four times at most, while the hypervisor takes a larger part of some rank's
  /// machine during it (as StolenTime says); the least disturbed one counts. 1: never.
  double disturbance = 1;
};

/// Runs `once` as often as that says, and returns what it did where it was least disturbed. Collective.
template <typename Once>
auto least_disturbed(ddl::Communicator& communicator, double disturbance, int& repeated, const Once& once) {
  constexpr int most_tries = 5;
  if (disturbance >= 1) return once();
  double least = 0;
  decltype(once()) best{};
  for (int i = 0; i < most_tries; ++i) {
    const StolenTime stolen;
    auto result = once();
    double share = stolen.share(1).value_or(0);
    communicator.all_reduce(std::span(&share, 1), ddl::ReduceOp::max);
    if (i == 0 || share < least) {
      least = share;
      best = std::move(result);
    }
    if (least <= disturbance) break;
    ++repeated;
  }
  return best;
}

/// What is timed: a call, and the barrier after which ranks start.
struct Run {
  std::function<void()> meet;
  std::function<void()> call;
};

/// Times the calls of `runs` in turns: an iteration of the first, one of the second, and so on. Ranks start
/// each iteration after the run's barrier, which is not timed; an iteration takes as long as its slowest
/// rank. Collective; all ranks get the same.
std::vector<Times> measure(ddl::Communicator& communicator, std::span<const Run> runs,
                           const Repetitions& repetitions);

/// Sorts; the mean of the two in the middle if there are two. 0 of none.
double median_of(std::span<double> values);

}  // namespace perf
