#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ddl/communicator.hpp"
#include "perf/machine.hpp"

namespace perf {

/// Times of one call in us.
struct Times {
  double median = 0;
  double least = 0;
  int repeated = 0;  ///< Number of repeated iterations; see Repetitions.
};

struct Repetitions {
  int warm_up = 5;
  int iterations = 20;
  int calls = 1;  ///< Calls in an iteration.
  /// An iteration is repeated, at most four times, while the hypervisor takes a larger share than this of
  /// some rank's machine (see StolenTime); the least disturbed repetition counts. 1: never.
  double disturbance = 1;
};

/// Runs `once`, repeatedly as described in Repetitions, and returns its least disturbed result. Collective.
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

/// A call to be timed, and the barrier after which ranks start.
struct Run {
  std::function<void()> meet;
  std::function<void()> call;
};

/// Times the calls of `runs` alternately: an iteration of the first, one of the second, and so on. Ranks
/// start each iteration after the run's barrier, which is not timed; the slowest rank's time counts.
/// Collective; all ranks get the same result.
std::vector<Times> measure(ddl::Communicator& communicator, std::span<const Run> runs,
                           const Repetitions& repetitions);

/// The median; for an even number of values, the mean of the middle two; 0 for no values. Sorts `values`.
double median_of(std::span<double> values);

}  // namespace perf
