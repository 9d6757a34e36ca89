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

/// Where a program's elements are. The initial value of element i is at `input` + i. After the program's
/// first write to it, it is at `output` + i if i is in [begin, end), and otherwise in memory of the engine.
/// If `input` == `output` and the range covers all elements, the program runs in place. Addresses of elements
/// outside of a buffer are computed but never accessed.
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  /// The elements that `input` holds.
  std::size_t input_begin = 0;
  std::size_t input_end = std::numeric_limits<std::size_t>::max();
};

/// The residuals of a compressed reduction: those of the previous call, and where this call stores its own.
/// Null if there are none.
struct Residual {
  const float* kept = nullptr;
  float* left = nullptr;
};

struct Call {
  /// Messages carry a 16-bit channel number; each communicator takes two.
  static constexpr int most_channels = 1 << 16;
  static constexpr int channels_each = 2;
  static constexpr int most_communicators = most_channels / channels_each;

  /// The call that messages name. For a part of a larger call, the larger call.
  CallId id = {};
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;  ///< Counts the communicator's calls, from 1.
  /// This is the comparison that precedes the call with this number. It has its own channel, because some
  /// ranks may compare while others already run the call.
  bool compares = false;
  Buffers buffers = {};
  Residual residual = {};
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  /// Equal for collectives with equal counts, types, operations and roots. Every message carries it.
  std::uint32_t fingerprint = 0;
  std::uint64_t record = 0;  ///< Number in the flight recorder; 0: it is not to be recorded.
  static constexpr std::uint64_t unrecorded = UINT64_MAX;  ///< A `record` that `enter` will set.
  std::shared_ptr<const PreparedProgram> program = nullptr;
  /// Counted from when the engine begins the call; max: none.
  std::chrono::milliseconds deadline = std::chrono::milliseconds::max();

  /// Records the call if it is to be recorded and has not been yet. Engines do so when they run a call.
  void enter(FlightRecorder& recorder) noexcept {
    if (record == unrecorded) record = recorder.called(id);
  }
  /// The communicator number in message tags.
  [[nodiscard]] std::uint16_t channel() const noexcept {
    return static_cast<std::uint16_t>(channels_each * communicator + (compares ? 1 : 0));
  }
  [[nodiscard]] static bool is_comparison(std::uint16_t channel) noexcept { return channel % 2 == 1; }
  [[nodiscard]] static std::uint16_t channel_of_calls(std::uint16_t channel) noexcept {
    return static_cast<std::uint16_t>(channel & ~1U);
  }
};

/// The shared state of a `Work`. Thread-safe.
class WorkState {
 public:
  using Continuation = std::function<void(const Error*)>;
  /// Makes progress in the caller's thread: until the operation is done, or once without blocking.
  using Help = std::function<void(const WorkState&, bool until_done)>;

  /// `help`: for operations that no thread drives. `run`: records the time of waits; may be null.
  explicit WorkState(Help help = nullptr, std::shared_ptr<RunRecorder> run = nullptr)
      : help_(std::move(help)), run_(std::move(run)) {}

  void wait();
  bool wait_for(std::chrono::nanoseconds duration);
  [[nodiscard]] bool test();
  void then(Continuation continuation);
  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Keeps an object alive until this is done.
  void keep(std::shared_ptr<const void> what);

  /// Must be called once. Runs the continuations.
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
