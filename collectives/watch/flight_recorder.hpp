#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/system/clock.hpp"
#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// Communicator numbers from here on are those of device communicators.
inline constexpr std::uint16_t first_on_devices = 0x8000;

/// What a part of the library makes a call for; `user`: the call is the trainer's own.
enum class CallPurpose : std::uint8_t { user, weight, bucket, norm, order, absence, agreement };

/// "gradient reducer: norm"; empty for the user's calls.
std::string_view to_string(CallPurpose purpose) noexcept;

/// Gives the calls that this thread makes while it exists a purpose.
class CallsFor {
 public:
  explicit CallsFor(CallPurpose purpose) noexcept : before_(std::exchange(now_, purpose)) {}
  CallsFor& operator=(CallsFor&&) = delete;
  ~CallsFor() { now_ = before_; }

  [[nodiscard]] static CallPurpose now() noexcept { return now_; }

 private:
  inline static thread_local CallPurpose now_ = CallPurpose::user;
  CallPurpose before_;
};

/// A collective's name, as flight recorders store it: its first 16 characters.
class CallName {
 public:
  using Words = std::array<std::uint64_t, 2>;

  constexpr CallName() = default;
  constexpr CallName(std::string_view text) { text.copy(letters_.data(), letters_.size()); }
  constexpr CallName(const char* text) : CallName(std::string_view(text)) {}
  explicit CallName(const Words& words) : letters_(std::bit_cast<std::array<char, sizeof words>>(words)) {}

  [[nodiscard]] constexpr std::string_view view() const noexcept {
    const std::string_view all(letters_.data(), letters_.size());
    return all.substr(0, all.find('\0'));
  }
  [[nodiscard]] Words words() const noexcept { return std::bit_cast<Words>(letters_); }
  friend bool operator==(const CallName&, const CallName&) = default;

 private:
  std::array<char, sizeof(Words)> letters_{};
};

/// A collective call as the user made it, for messages and records.
struct CallId {
  CallName name;  ///< "all_reduce", ...
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;  ///< Counts the communicator's calls, from 1.
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = -1;  ///< -1 if the collective has no root.
  CallPurpose purpose = CallPurpose::user;

  /// "all_reduce #12 (sum of 262144 f32, 1048576 bytes)"; "(...; gradient reducer: bucket)" with a purpose.
  [[nodiscard]] std::string describe() const;
};

struct FlightRecord : CallId {
  enum class State : std::uint8_t { called, begun, finished, failed };

  State state = State::called;
  double called_ago = 0;  ///< In seconds.
  double ended_ago = 0;   ///< In seconds; 0 until the call has ended.

  [[nodiscard]] bool is_over() const noexcept { return state >= State::finished; }
};

const char* to_string(FlightRecord::State state) noexcept;
/// One line per record, oldest first: "12.3 s ago: all_reduce #7 (...), finished after 0.8 ms".
std::string to_text(const std::vector<FlightRecord>& records);

/// The memory of a flight recorder, initially zeros. The ranks of a host share it, so that peers can still
/// read it when its rank has died.
struct FlightTape {
  static constexpr std::size_t most_records = 256;
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> number;  ///< Of the record, from 1; 0 while it is written, or if empty.
    std::atomic<std::uint64_t> sequence;
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> about;   ///< Communicator, root, type, op, purpose and state.
    std::atomic<std::uint64_t> called;  ///< In `Ticks`, like `ended`.
    std::atomic<std::uint64_t> ended;
    std::array<std::atomic<std::uint64_t>, 2> name;
  };
  alignas(64) std::atomic<std::uint64_t> last;
  std::array<Slot, most_records> slots;
};
static_assert(sizeof(FlightTape::Slot) == 64);

/// Records a rank's last 256 collectives, at a few nanoseconds per call. Thread-safe.
class FlightRecorder {
 public:
  /// Uses its own memory if `tape` is null.
  explicit FlightRecorder(FlightTape* tape = nullptr);
  ~FlightRecorder();

  /// Records a call and returns its number, which the other functions take.
  std::uint64_t called(const CallId& call) noexcept;
  void begun(std::uint64_t number) noexcept;
  struct Times {
    /// In `Ticks`. `called` equals `ended` for a call that is no longer among the newest 256.
    std::uint64_t called, ended;
  };
  Times over(std::uint64_t number, bool failed) noexcept;
  /// Ticks at which the call was recorded; 0 if it is no longer among the newest 256.
  [[nodiscard]] std::uint64_t called_at(std::uint64_t number) const noexcept {
    const FlightTape::Slot* const slot = slot_of(number);
    return slot == nullptr ? 0 : slot->called.load(std::memory_order_relaxed);
  }

  /// Oldest first. Skips records that are being written.
  [[nodiscard]] std::vector<FlightRecord> records() const;
  [[nodiscard]] std::vector<FlightRecord> records_of(const FlightTape& tape) const;

  /// Registers a device communicator, whose calls end without any thread noticing. `notice` updates its
  /// records: any thread calls it before records are read, until `remove_on_devices`, and it must be quick.
  /// Returns the communicator's number, which is the same on all ranks if all add theirs in the same order.
  std::uint16_t add_on_devices(std::function<void()> notice);
  void remove_on_devices(std::uint16_t number);

 private:
  /// The slot of a record; null if it is no longer among the newest 256.
  [[nodiscard]] FlightTape::Slot* slot_of(std::uint64_t number) const noexcept {
    FlightTape::Slot& slot = tape_->slots[number % FlightTape::most_records];
    return number != 0 && slot.number.load(std::memory_order_relaxed) == number ? &slot : nullptr;
  }

  std::unique_ptr<FlightTape> own_;
  FlightTape* tape_;
  Ticks ticks_;
  mutable std::mutex mutex_;
  std::map<std::uint16_t, std::function<void()>> on_devices_;
  std::uint16_t next_on_devices_ = first_on_devices;
};

}  // namespace ddl::collectives
