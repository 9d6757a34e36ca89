#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <ranges>
#include <string>
#include <vector>

namespace ddl::collectives {

/// Runs `step`: what its error says, or nothing. For steps of ranks that then tell each other how they went.
template <typename Step>
std::string problem_of(const Step& step) {
  try {
    step();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// "rank 3: " and its problem, of the first one of `ranks` that has any; empty if none has. `problems` is by
/// rank.
std::string first_problem(const std::vector<std::string>& problems, const auto& ranks) {
  for (const auto rank : ranks) {
    const std::string& problem = problems[static_cast<std::size_t>(rank)];
    if (!problem.empty()) return fmt::format("rank {}: {}", rank, problem);
  }
  return {};
}
inline std::string first_problem(const std::vector<std::string>& problems) {
  return first_problem(problems, std::views::iota(std::size_t{0}, problems.size()));
}

}  // namespace ddl::collectives
