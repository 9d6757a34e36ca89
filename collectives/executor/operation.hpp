#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/program/prepared_program.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "ddl/data_type.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

/// Where a program's elements are. Element i's first value is at `input` + i; from the program's first write
/// to it on it is at `output` + i if i is in [begin, end), else in memory of the engine's own. With `input`
/// == `output` and all elements in the range, the program runs in place. Addresses of elements that do not
/// exist at that place are only computed, never used.
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  /// Elements that `input` has.
  std::size_t input_begin = 0;
  std::size_t input_end = std::numeric_limits<std::size_t>::max();
};

/// Memory for the program's residual: what the last call has left, and what this one leaves; null: neither.
struct Residual {
  const float* kept = nullptr;
  float* left = nullptr;
};

/// One call of a collective.
struct Call {
  /// Numbers that messages tell apart at most, and how many of them a communicator takes.
  static constexpr int most_channels = 1 << 16;
  static constexpr int channels_each = 2;
  static constexpr int most_communicators = most_channels / channels_each;

  /// What messages call it. Of a call that is part of another one, that one.
  CallId id = {};
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;  ///< In the communicator, from 1 on.
  /// It is the comparison that goes before a call with this number. What its messages carry is not mixed up
  /// with the call's, though some ranks may compare and others not.
  bool compares = false;
  Buffers buffers = {};
  Residual residual = {};
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  /// Equal for equal collectives of equal counts, types, operations and roots. Goes along with every message.
  std::uint32_t fingerprint = 0;
  std::uint64_t record = 0;  ///< The flight recorder's number; 0: it is not to know.
  std::shared_ptr<const PreparedProgram> program = nullptr;
  /// From when the call is made; max: none.
  std::chrono::milliseconds deadline = std::chrono::milliseconds::max();

  /// What messages call the communicator.
  [[nodiscard]] std::uint16_t channel() const noexcept {
    return static_cast<std::uint16_t>(channels_each * communicator + (compares ? 1 : 0));
  }
  [[nodiscard]] static bool is_comparison(std::uint16_t channel) noexcept { return channel % 2 == 1; }
  [[nodiscard]] static std::uint16_t channel_of_calls(std::uint16_t channel) noexcept {
    return static_cast<std::uint16_t>(channel & ~1U);
  }
};

/// What a `Work` refers to. Any thread.
class WorkState {
 public:
  using Continuation = std::function<void(const Error*)>;
  /// Moves the operation on in the caller's thread: until it is done, or by what can be done now.
  using Help = std::function<void(const WorkState&, bool until_done)>;

  /// `help`: for operations that no thread moves by itself. `run`: told of waits, if not null.
  explicit WorkState(Help help = nullptr, std::shared_ptr<RunRecorder> run = nullptr)
      : help_(std::move(help)), run_(std::move(run)) {}

  void wait();
  bool wait_for(std::chrono::nanoseconds duration);
  [[nodiscard]] bool test();
  void then(Continuation continuation);
  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Holds on to something until this is done.
  void keep(std::shared_ptr<const void> what);

  /// Called once; runs the continuations.
  void finish(std::optional<Error> error);

 private:
  const Help help_;
  const std::shared_ptr<RunRecorder> run_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> error_;
  std::vector<Continuation> continuations_;
  std::shared_ptr<const void> kept_;
};

}  // namespace ddl::collectives
