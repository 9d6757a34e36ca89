#include "perf/stopwatch.hpp"

#include <algorithm>
#include <chrono>

namespace perf {

std::vector<Times> measure(ddl::Communicator& communicator, std::span<const Run> runs,
                           const Repetitions& repetitions) {
  const auto iterations = static_cast<std::size_t>(repetitions.iterations);
  std::vector<double> us(runs.size() * iterations);  // by run, then by iteration
  std::vector<int> repeated(runs.size());
  for (int i = 0; i < repetitions.warm_up; ++i) {
    for (const Run& run : runs) {
      run.meet();
      for (int call = 0; call < repetitions.calls; ++call) run.call();
    }
  }
  for (std::size_t i = 0; i < iterations; ++i) {
    for (std::size_t r = 0; r < runs.size(); ++r) {
      us[r * iterations + i] = least_disturbed(communicator, repetitions.disturbance, repeated[r], [&] {
        runs[r].meet();
        const auto start = std::chrono::steady_clock::now();
        for (int call = 0; call < repetitions.calls; ++call) runs[r].call();
        const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
        return time.count() / repetitions.calls;
      });
    }
  }
  communicator.all_reduce(std::span(us), ddl::ReduceOp::max);
  std::vector<Times> result;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::span own = std::span(us).subspan(r * iterations, iterations);
    result.push_back({median_of(own), *std::ranges::min_element(own), repeated[r]});
  }
  return result;
}

double median_of(std::span<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace perf
