#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ddl/context.hpp"

namespace perf {

/// What a rank that is a thread measures; returns the number of wrong elements of all ranks.
using RankBody = std::function<std::size_t(ddl::Context&)>;

/// The job of such a program.
struct RankJob {
  int ranks = 1;
  ddl::InProcessOptions options = {};
};

/// main of a program whose ranks are threads: prints `help` if asked to, else has `prepare` read the
/// arguments and say what each rank of the job does. The exit status is 1 if rank 0 finds something wrong, 2
/// if an argument is.
int main_of_threads(std::string_view name, std::string_view help, int count, char** arguments,
                    const std::function<RankBody(std::span<const std::string>, RankJob& job)>& prepare);

}  // namespace perf
