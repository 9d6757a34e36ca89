#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ddl/communicator.hpp"

namespace perf {

/// Of one call, in us.
struct Times {
  double median = 0;
  double least = 0;
};

struct Repetitions {
  int warm_up = 5;
  int iterations = 20;
  int calls = 1;  ///< In an iteration.
};

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
