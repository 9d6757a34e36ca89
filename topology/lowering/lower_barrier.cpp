#include <fmt/format.h>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::topology {

Program lower_barrier(int ranks, int rank) {
  if (rank < 0 || rank >= ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("lowering: found rank {} of {}, expected 0 to {}", rank, ranks, ranks - 1));
  }
  Program program;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const std::size_t heard = 1 + program.scratch++;
    program.steps.push_back(
        {.kind = StepKind::send, .peer = (rank + distance) % ranks, .begin = 0, .end = 1});
    program.steps.push_back({.kind = StepKind::receive,
                             .peer = (rank - distance + ranks) % ranks,
                             .begin = heard,
                             .end = heard + 1});
    program.steps.push_back({.kind = StepKind::reduce, .begin = 0, .end = 1, .source = heard});
  }
  return program;
}

}  // namespace ddl::topology
