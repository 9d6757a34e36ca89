#include "collectives/engine/phase_times.hpp"

#include <algorithm>

namespace ddl::collectives {

void PhaseTimes::start(const PreparedProgram& program) {
  spans_.clear();
  chunks_ = 1;
  if (program.names() == nullptr || program.names()->dimension_of.empty()) return;
  std::size_t phases = 0;
  for (const Task& task : program.tasks()) {
    chunks_ = std::max(chunks_, std::size_t{task.chunk} + 1);
    phases = std::max(phases, std::size_t{task.phase} + 1);
  }
  spans_.resize(phases * chunks_);
  for (const Task& task : program.tasks()) {
    Span& span = span_of(task);
    ++span.left;
    span.elements += task.size();
  }
}

std::span<const std::uint64_t> PhaseTimes::dimension_ticks(const PlanNames& names) {
  ticks_.assign(spans_.empty() ? 0 : names.dimensions.size(), 0);
  for (std::size_t dimension = 0; dimension < ticks_.size(); ++dimension) {
    intervals_.clear();
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const std::size_t phase = i / chunks_;
      const bool counts = phase < names.dimension_of.size() &&
                          names.dimension_of[phase] == static_cast<int>(dimension) && spans_[i].end != 0;
      if (counts) intervals_.emplace_back(spans_[i].begin, spans_[i].end);
    }
    std::ranges::sort(intervals_);
    std::uint64_t until = 0;
    for (const auto& [begin, end] : intervals_) {
      if (end > until) ticks_[dimension] += end - std::max(begin, until);
      until = std::max(until, end);
    }
  }
  return ticks_;
}

}  // namespace ddl::collectives
