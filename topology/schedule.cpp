#include "ddl/topology/schedule.hpp"

#include <fmt/format.h>

namespace ddl::topology {

std::string_view to_string(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::receive:
      return "receive";
    case StepKind::receive_reduce:
      return "receive_reduce";
    case StepKind::finish:
      return "finish";
  }
  return "unknown step";
}

std::string to_string(const Step& step) {
  const std::string range =
      fmt::format("round {}: {} [{}, {})", step.round, to_string(step.kind), step.begin, step.end);
  switch (step.kind) {
    case StepKind::send:
      return fmt::format("{} to {}", range, step.peer);
    case StepKind::receive:
    case StepKind::receive_reduce:
      return fmt::format("{} from {}", range, step.peer);
    case StepKind::finish:
      break;
  }
  return range;
}

}  // namespace ddl::topology
