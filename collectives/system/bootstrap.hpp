#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/as_index.hpp"

namespace ddl::collectives {

/// How ranks exchange start-up data before any transport exists: through MPI, between the threads of one
/// process, or otherwise. All ranks must make the collective calls in the same order.
class Bootstrap {
 public:
  Bootstrap& operator=(Bootstrap&&) = delete;
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Returns every rank's `bytes`, indexed by rank. Collective. Meant for start-up: it may be slow.
  virtual std::vector<std::string> all_gather(std::string_view bytes) = 0;
  /// Ends all processes of the job, because this rank cannot go on and its peers may be waiting. Returns if
  /// the implementation has no way to do that.
  virtual void abort(int status) noexcept = 0;
  /// Sets a function that is called repeatedly while `all_gather` waits; an empty function disables this.
  /// Implementations whose waiting does not keep other threads from working may ignore it.
  virtual void set_idle(std::function<void()> /*idle*/) {}
  /// Tells the bootstrap that the job will not be shut down in an orderly way (no MPI_Finalize).
  virtual void abandon() noexcept {}
};

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
    const std::string& problem = problems[as_index(rank)];
    if (!problem.empty()) return fmt::format("rank {}: {}", rank, problem);
  }
  return {};
}
inline std::string first_problem(const std::vector<std::string>& problems) {
  return first_problem(problems, std::views::iota(std::size_t{0}, problems.size()));
}

}  // namespace ddl::collectives
