#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/program/prepared_program.hpp"
#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// When each chunk of a call was in each phase of its plan, on this rank. Used with the engine's token.
class PhaseTimes {
 public:
  struct Span {
    std::uint64_t begin = 0;  ///< In `Ticks`: when its first run began.
    std::uint64_t end = 0;
    std::uint32_t left = 0;      ///< Runs that are not complete.
    std::uint64_t elements = 0;  ///< In all its runs.
  };

  /// Records nothing for a program whose plan has no phases.
  void start(const PreparedProgram& program);
  void begun(const topology::Step& run) noexcept {
    if (spans_.empty()) return;
    Span& span = span_of(run);
    if (span.begin == 0) span.begin = Ticks::now();
  }
  void over(const topology::Step& run) noexcept {
    if (spans_.empty()) return;
    Span& span = span_of(run);
    if (--span.left == 0) span.end = Ticks::now();
  }

  [[nodiscard]] std::size_t phases() const noexcept { return spans_.size() / chunks_; }
  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] const Span& at(std::size_t phase, std::size_t chunk) const noexcept {
    return spans_[phase * chunks_ + chunk];
  }
  /// Ticks during which any chunk was in each dimension. Valid until the next call.
  std::span<const std::uint64_t> dimension_ticks(const ChosenPlan& plan);

 private:
  [[nodiscard]] Span& span_of(const topology::Step& run) noexcept {
    return spans_[run.phase * chunks_ + run.chunk];
  }

  std::size_t chunks_ = 1;
  std::vector<Span> spans_;  // by phase, then by chunk
  std::vector<std::pair<std::uint64_t, std::uint64_t>> intervals_;
  std::vector<std::uint64_t> ticks_;
};

}  // namespace ddl::collectives
