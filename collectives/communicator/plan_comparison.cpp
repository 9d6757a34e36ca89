#include "collectives/communicator/plan_comparison.hpp"

#include <bit>

namespace ddl::collectives {

using topology::Program;
using topology::Step;
using topology::StepKind;

std::array<std::int64_t, 2> comparison_of(std::uint64_t value) noexcept {
  return {std::bit_cast<std::int64_t>(value), std::bit_cast<std::int64_t>(~value)};
}

bool are_equal(const std::array<std::int64_t, 2>& greatest) noexcept {
  // ~x falls as x grows: the second is the complement of the least.
  return greatest[0] == ~greatest[1];
}

Program greatest_program(int ranks, int rank, std::size_t count) {
  const std::size_t n = count;
  Program program{{}, n};
  for (int distance = 1; distance < ranks; distance *= 2) {
    const std::int32_t to = (rank + distance) % ranks;
    const std::int32_t from = (rank + ranks - distance) % ranks;
    program.steps.push_back({.kind = StepKind::send, .peer = to, .begin = 0, .end = n});
    // Not straight into the buffer: without any buffering between them, ranks in a circle would each wait for
    // their send before they receive.
    program.steps.push_back({.kind = StepKind::receive, .peer = from, .begin = n, .end = 2 * n});
    program.steps.push_back({.kind = StepKind::reduce, .begin = 0, .end = n, .source = n});
  }
  return program;
}

}  // namespace ddl::collectives
