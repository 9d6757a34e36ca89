#include <algorithm>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::topology {
namespace {

bool same_stream(const Step& a, const Step& b) {
  return !is_local(a.kind) && !is_local(b.kind) && a.peer == b.peer &&
         is_receive(a.kind) == is_receive(b.kind);
}

/// The steps from `first` on that can be listed piece by piece: of one range, so that a piece conflicts only
/// with the same pieces of the others, and no two of a stream, whose messages keep their order.
std::size_t end_of_run(const std::vector<Step>& steps, std::size_t first) {
  std::size_t end = first + 1;
  for (; end < steps.size(); ++end) {
    const Step& next = steps[end];
    if (next.begin != steps[first].begin || next.end != steps[first].end) break;
    const auto of_its_stream = [&](const Step& step) { return same_stream(step, next); };
    if (std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(first),
                    steps.begin() + static_cast<std::ptrdiff_t>(end), of_its_stream)) {
      break;
    }
  }
  return end;
}

}  // namespace

void split_steps(Program& program, std::size_t most_elements) {
  if (most_elements == 0) {
    throw Error(ErrorCode::invalid_argument, "split_steps: found pieces of 0 elements, expected at least 1");
  }
  const std::vector<Step>& steps = program.steps;
  if (std::all_of(steps.begin(), steps.end(),
                  [&](const Step& step) { return step.size() <= most_elements; })) {
    return;
  }
  std::vector<Step> result;
  for (std::size_t first = 0; first < steps.size();) {
    const std::size_t size = steps[first].size();
    if (size <= most_elements) {
      result.push_back(steps[first++]);
      continue;
    }
    const std::size_t end = end_of_run(steps, first);
    const std::size_t pieces = (size - 1) / most_elements + 1;
    std::size_t offset = 0;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t length = size / pieces + (piece < size % pieces ? 1 : 0);
      for (std::size_t at = first; at < end; ++at) {
        Step step = steps[at];
        step.begin += offset;
        step.end = step.begin + length;
        if (step.kind == StepKind::reduce || step.kind == StepKind::copy) step.source += offset;
        result.push_back(step);
      }
      offset += length;
    }
    first = end;
  }
  program.steps = std::move(result);
}

}  // namespace ddl::topology
