#include <algorithm>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::topology {
namespace {

bool same_stream(const Step& a, const Step& b) {
  return !is_local(a.kind) && !is_local(b.kind) && a.peer == b.peer &&
         is_receive(a.kind) == is_receive(b.kind);
}

class Splitter {
 public:
  Splitter(const std::vector<Step>& steps, const PieceSizes& most, const InsideHost& is_inside)
      : steps_(steps), most_(most), is_inside_(is_inside) {
    const auto crosses = [&](const Step& step) { return !is_local(step.kind) && !is_inside_(step.peer); };
    local_ = std::ranges::any_of(steps_, crosses) ? most_.between_hosts : most_.inside_host;
  }

  [[nodiscard]] bool has_work() const {
    return std::ranges::any_of(steps_, [&](const Step& step) { return step.size() > most_of(step); });
  }

  std::vector<Step> split() {
    std::vector<Step> result;
    for (std::size_t first = 0; first < steps_.size();) {
      const auto [end, most] = run_from(first);
      const std::size_t size = steps_[first].size();
      const std::size_t pieces = size <= most ? 1 : (size - 1) / most + 1;
      std::size_t offset = 0;
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        const std::size_t length = size / pieces + (piece < size % pieces ? 1 : 0);
        for (std::size_t at = first; at < end; ++at) {
          Step step = steps_[at];
          step.begin += offset;
          step.end = step.begin + length;
          if (step.kind == StepKind::reduce || step.kind == StepKind::copy) step.source += offset;
          result.push_back(step);
        }
        offset += length;
      }
      first = end;
    }
    return result;
  }

 private:
  struct Run {
    std::size_t end;
    std::size_t most;
  };

  [[nodiscard]] std::size_t most_of(const Step& step) const {
    if (is_local(step.kind)) return local_;
    return is_inside_(step.peer) ? most_.inside_host : most_.between_hosts;
  }

  /// The steps from `first` on that can be listed piece by piece: of one range, so that a piece conflicts
  /// only with the same pieces of the others, cut alike, and no two of a stream, whose messages keep their
  /// order. Local steps are cut as those before them.
  [[nodiscard]] Run run_from(std::size_t first) const {
    const Step& head = steps_[first];
    const std::size_t most = most_of(head);
    std::size_t end = first + 1;
    if (head.size() <= std::min(most_.inside_host, most_.between_hosts)) return {end, most};
    for (; end < steps_.size(); ++end) {
      const Step& next = steps_[end];
      if (next.begin != head.begin || next.end != head.end) break;
      if (!is_local(next.kind) && most_of(next) != most) break;
      const auto of_its_stream = [&](const Step& step) { return same_stream(step, next); };
      if (std::any_of(steps_.begin() + static_cast<std::ptrdiff_t>(first),
                      steps_.begin() + static_cast<std::ptrdiff_t>(end), of_its_stream)) {
        break;
      }
    }
    return {end, most};
  }

  const std::vector<Step>& steps_;
  const PieceSizes& most_;
  const InsideHost& is_inside_;
  std::size_t local_;
};

}  // namespace

void split_steps(Program& program, const PieceSizes& most, const InsideHost& is_inside) {
  if (most.inside_host == 0 || most.between_hosts == 0) {
    throw Error(ErrorCode::invalid_argument, "split_steps: found pieces of 0 elements, expected at least 1");
  }
  Splitter splitter(program.steps, most, is_inside);
  if (splitter.has_work()) program.steps = splitter.split();
}

}  // namespace ddl::topology
