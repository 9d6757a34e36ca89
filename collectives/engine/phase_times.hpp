#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/engine/prepared_program.hpp"
#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// When each chunk of a call was in each phase of its plan, on this rank. With the engine's token.
class PhaseTimes {
 public:
  struct Span {
    std::uint64_t begin = 0;  ///< `Ticks`; when the first of its tasks began.
    std::uint64_t end = 0;
    std::uint32_t left = 0;      ///< Tasks.
    std::uint64_t elements = 0;  ///< Of its tasks.
  };

  /// None of a program without a plan's phases.
  void start(const PreparedProgram& program);
  void begun(const Task& task) noexcept {
    if (spans_.empty()) return;
    Span& span = span_of(task);
    if (span.begin == 0) span.begin = Ticks::now();
  }
  void over(const Task& task) noexcept {
    if (spans_.empty()) return;
    Span& span = span_of(task);
    if (--span.left == 0) span.end = Ticks::now();
  }

  [[nodiscard]] std::size_t phases() const noexcept { return spans_.size() / chunks_; }
  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] const Span& at(std::size_t phase, std::size_t chunk) const noexcept {
    return spans_[phase * chunks_ + chunk];
  }
  /// For how many ticks some chunk was in each dimension. Valid until the next call.
  std::span<const std::uint64_t> dimension_ticks(const PlanNames& names);

 private:
  [[nodiscard]] Span& span_of(const Task& task) noexcept { return spans_[task.phase * chunks_ + task.chunk]; }

  std::size_t chunks_ = 1;
  std::vector<Span> spans_;  // by phase, then chunk
  std::vector<std::pair<std::uint64_t, std::uint64_t>> intervals_;
  std::vector<std::uint64_t> ticks_;
};

}  // namespace ddl::collectives
