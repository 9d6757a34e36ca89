#include "ddl/topology/schedule.hpp"

#include <fmt/format.h>

namespace ddl::topology {

std::string_view to_string(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce:
      return "reduce";
  }
  return "?";
}

std::string_view to_string(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::receive:
      return "receive";
    case StepKind::receive_reduce:
      return "receive_reduce";
    case StepKind::reduce:
      return "reduce";
    case StepKind::copy:
      return "copy";
    case StepKind::finish:
      return "finish";
  }
  return "?";
}

std::string to_string(const Step& step) {
  const std::string range = fmt::format("{} [{}, {})", to_string(step.kind), step.begin, step.end);
  switch (step.kind) {
    case StepKind::send:
      return fmt::format("{} to {}", range, step.peer);
    case StepKind::receive:
    case StepKind::receive_reduce:
      return fmt::format("{} from {}", range, step.peer);
    case StepKind::reduce:
    case StepKind::copy:
      return fmt::format("{} from own [{}, {})", range, step.source, step.source + step.size());
    case StepKind::finish:
      break;
  }
  return range;
}

}  // namespace ddl::topology
