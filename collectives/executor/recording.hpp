#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/executor/operation.hpp"
#include "collectives/program/prepared_program.hpp"
#include "collectives/system/clock.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "collectives/watch/flight_recorder.hpp"

namespace ddl::collectives {

/// When each chunk of a call was in each phase of its plan, on this rank. With the engine's token.
class PhaseTimes {
 public:
  struct Span {
    std::uint64_t begin = 0;  ///< `Ticks`; when the first of its runs began.
    std::uint64_t end = 0;
    std::uint32_t left = 0;      ///< Runs.
    std::uint64_t elements = 0;  ///< Of its runs.
  };

  /// None of a program without a plan's phases.
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
  /// For how many ticks some chunk was in each dimension. Valid until the next call.
  std::span<const std::uint64_t> dimension_ticks(const ChosenPlan& plan);

 private:
  [[nodiscard]] Span& span_of(const topology::Step& run) noexcept {
    return spans_[run.phase * chunks_ + run.chunk];
  }

  std::size_t chunks_ = 1;
  std::vector<Span> spans_;  // by phase, then chunk
  std::vector<std::pair<std::uint64_t, std::uint64_t>> intervals_;
  std::vector<std::uint64_t> ticks_;
};

/// Puts an engine's calls into the run's record. With the engine's token.
class CallEvents {
 public:
  /// `run` null: what follows must not be called, but for `settle`.
  CallEvents(RunRecorder* run, const FlightRecorder& calls) : run_(run), calls_(calls) {}

  struct Course {
    std::uint64_t begun, ended;  // Ticks
    CallFacts::Way way = CallFacts::Way::done;
  };
  void add(const Call& call, std::uint32_t plan, const Course& course);

  // A call of which nothing but its length is to be told. Calls of one kind, one after the other, are put
  // down together.

  /// To be called in each while it waits for others: does what need not be done when it is over. All ranks
  /// flush in the same calls, or each would wait for the others to have done it.
  void expect_small(const Call& call) {
    if (call.id.sequence % most_small == 0) settle();
    small_.takes_next = small_.takes(call);
  }
  /// When it was made and when it ended, in `Ticks`.
  void add_small(const Call& call, std::uint64_t called, std::uint64_t ended) {
    const std::uint64_t pause = called - small_.ended;
    const std::uint64_t length = ended - called;
    if (!small_.takes_next || !RepeatedCall::fits(pause | length)) return begin_small(call, called, ended);
    repeats_[small_.calls++ - 1] = {static_cast<std::uint32_t>(pause), static_cast<std::uint32_t>(length)};
    ++small_.next;
    small_.ended = ended;
  }
  void settle() {
    if (small_.calls != 0) put_down_small();
  }

 private:
  static constexpr std::uint32_t most_small = EventRing::most_repeats;
  /// What is looked at in each small call, in one line of the cache: all of one kind, one after the other.
  struct alignas(64) SmallCalls {
    [[nodiscard]] bool takes(const Call& call) const noexcept {
      return call.id.sequence == next && calls < most_small && call.program.get() == program &&
             call.id.name == name && call.fingerprint == fingerprint && call.communicator == communicator &&
             call.type == type && call.op == op;
    }
    std::uint64_t next = 0;  // sequence number
    const PreparedProgram* program = nullptr;
    const char* name = nullptr;
    std::uint32_t fingerprint = 0;
    std::uint16_t communicator = 0;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    std::uint64_t ended = 0;  // the last one
    std::uint32_t calls = 0;
    bool takes_next = false;  // the call that is under way
  };
  static_assert(sizeof(SmallCalls) == 64);

  void begin_small(const Call& call, std::uint64_t called, std::uint64_t ended);
  void put_down_small();
  Event event_of(const Call& call, std::uint32_t plan, std::uint64_t called, const Course& course);

  SmallCalls small_;
  std::array<RepeatedCall, most_small - 1> repeats_{};
  Call first_;  // of the small ones
  Course first_course_{};
  RunRecorder* run_;
  const FlightRecorder& calls_;
  const char* labelled_ = nullptr;  // the call of which `label_` is
  std::uint32_t label_ = 0;
  std::uint16_t track_ = 0;
};

}  // namespace ddl::collectives
