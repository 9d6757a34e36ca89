#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <ranges>
#include <string>
#include <vector>

namespace ddl::collectives {

/// Runs `step` and returns the message of its exception, or an empty string. For steps after which ranks
/// exchange how they went.
template <typename Step>
std::string problem_of(const Step& step) {
  try {
    step();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// "rank 3: " and the problem of the first of `ranks` that has one; empty if none has. `problems` is indexed
/// by rank.
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
