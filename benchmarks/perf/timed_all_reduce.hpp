#pragma once

#include <chrono>
#include <cstddef>

#include "ddl/ddl.hpp"

namespace perf {

/// A context, and what its small all-reduces take.
class TimedAllReduce {
 public:
  TimedAllReduce(const ddl::ContextOptions& options, std::size_t bytes)
      : context_(ddl::Context::from_environment(options)),
        values_(ddl::allocate<float>(context_, bytes / sizeof(float))) {}

  /// After a barrier, so many in place, fp32, back to back: ns each.
  double time(std::size_t calls) {
    context_.communicator().barrier();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < calls; ++i) context_.communicator().all_reduce(values_.span());
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / static_cast<double>(calls);
  }

 private:
  ddl::Context context_;
  ddl::SharedBuffer<float> values_;
};

}  // namespace perf
