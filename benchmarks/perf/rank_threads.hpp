#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ddl/context.hpp"

namespace perf {

/// The measurement of a rank that is a thread; returns the number of wrong elements of all ranks.
using RankBody = std::function<std::size_t(ddl::Context&)>;

/// The job of a program whose ranks are threads.
struct RankJob {
  int ranks = 1;
  ddl::InProcessOptions options = {};
};

/// main of a program whose ranks are threads: prints `help` on request, else calls `prepare`, which parses
/// the arguments, sets up the job and returns the ranks' body. The exit status is 1 if rank 0 finds wrong
/// results, 2 for a wrong argument.
int main_of_threads(std::string_view name, std::string_view help, int count, char** arguments,
                    const std::function<RankBody(std::span<const std::string>, RankJob& job)>& prepare);

}  // namespace perf
