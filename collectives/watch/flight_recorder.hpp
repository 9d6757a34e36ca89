#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/system/clock.hpp"
#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// From here on, numbers of communicators are those of communicators on devices.
inline constexpr std::uint16_t first_on_devices = 0x8000;

/// A collective as its caller gave it, for messages and records.
struct CallId {
  const char* name = "";  ///< "all_reduce", ...; lives as long as the program.
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;  ///< In the communicator, from 1 on.
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = -1;  ///< -1: it has none.
};

/// What a rank called, and how far it has come.
struct FlightRecord {
  enum class State : std::uint8_t { called, begun, finished, failed };

  std::string name;
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = -1;  ///< -1: it has none.
  State state = State::called;
  double called_ago = 0;  ///< Seconds.
  double ended_ago = 0;   ///< Seconds; 0 while it is not over.

  [[nodiscard]] bool is_over() const noexcept { return state >= State::finished; }
  /// "all_reduce #12 (sum of 262144 f32, 1048576 bytes)".
  [[nodiscard]] std::string describe() const;
};

const char* to_string(FlightRecord::State state) noexcept;
/// A line for each, oldest first, "12.3 s ago: all_reduce #7 (...), finished after 0.8 ms".
std::string to_text(const std::vector<FlightRecord>& records);
/// As it was called.
FlightRecord record_of(const CallId& call);

/// A flight recorder's memory: zeros at first. The ranks of a host share it, so that the others can read it
/// when its rank is dead.
struct FlightTape {
  static constexpr std::size_t most_records = 256;
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> number;  ///< Which record is here, from 1 on; 0: it is being written, or none.
    std::atomic<std::uint64_t> sequence;
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> about;   ///< Communicator, root, type, op, and how far it has come.
    std::atomic<std::uint64_t> called;  ///< `Ticks`.
    std::atomic<std::uint64_t> ended;
    std::array<std::atomic<std::uint64_t>, 2> name;
  };
  alignas(64) std::atomic<std::uint64_t> last;
  std::array<Slot, most_records> slots;
};
static_assert(sizeof(FlightTape::Slot) == 64);

/// Keeps the last 256 collectives of a rank, for a few nanoseconds each. Any thread.
class FlightRecorder {
 public:
  /// `tape`: null for memory of its own.
  explicit FlightRecorder(FlightTape* tape = nullptr);
  ~FlightRecorder();

  /// Notes a call; returns its number for the others.
  std::uint64_t called(const CallId& call) noexcept;
  void begun(std::uint64_t number) noexcept;
  struct Times {
    std::uint64_t called, ended;  ///< `Ticks`. Not one of the newest 256: called as it ended.
  };
  Times over(std::uint64_t number, bool failed) noexcept;
  /// Of one of the newest 256; else 0.
  [[nodiscard]] std::uint64_t called_at(std::uint64_t number) const noexcept {
    const FlightTape::Slot& slot = tape_->slots[number % FlightTape::most_records];
    const bool is_here = number != 0 && slot.number.load(std::memory_order_relaxed) == number;
    return is_here ? slot.called.load(std::memory_order_relaxed) : 0;
  }

  /// Oldest first. What is being written is left out.
  [[nodiscard]] std::vector<FlightRecord> records() const;
  [[nodiscard]] std::vector<FlightRecord> records_of(const FlightTape& tape) const;

  /// For a communicator on devices, whose calls end without a thread's noticing: `notice` is called before
  /// records are read, by any thread, until `remove_on_devices`; it must be quick. Returns the communicator's
  /// number: the same on all ranks if all have added theirs in the same order.
  std::uint16_t add_on_devices(std::function<void()> notice);
  void remove_on_devices(std::uint16_t number);

 private:
  [[nodiscard]] FlightTape::Slot* slot_of(std::uint64_t number) noexcept;

  std::unique_ptr<FlightTape> own_;
  FlightTape* tape_;
  Ticks ticks_;
  mutable std::mutex mutex_;
  std::map<std::uint16_t, std::function<void()>> on_devices_;
  std::uint16_t next_on_devices_ = first_on_devices;
};

}  // namespace ddl::collectives
