#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/timeline/run_statistics.hpp"
#include "ddl/data_type.hpp"

namespace ddl::collectives {

struct NamedNumbers {
  static constexpr std::size_t most = 3;
  std::array<std::uint32_t, most> names{};
  std::uint32_t count = 0;
  std::array<std::int64_t, most> values{};
};

struct CallFacts {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t called = 0;  ///< In `Ticks`: when the trainer made the call.
  std::uint32_t plan = 0;    ///< See `RunStatistics::plan_number`.
  std::uint16_t communicator = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = -1;
  /// `compared`: the comparison before a call.
  enum class Way : std::uint8_t { done, failed, compared } way = Way::done;
};

struct PhaseFacts {
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;  ///< Handled by this rank's steps.
  std::uint32_t plan = 0;
  std::uint16_t communicator = 0;
  std::uint16_t chunk = 0;
  std::uint32_t phase = 0;
};

/// Something that a rank did between two moments. `name` and `track` are numbers from a `RunRecorder`.
struct Event {
  enum class Kind : std::uint8_t {
    span,     ///< Named by the trainer or by a part of the library.
    instant,  ///< The same, without a length.
    call,     ///< A collective in the engine.
    phase,    ///< One chunk of a collective in one phase of its plan.
  };
  /// `kind` says which member is valid.
  union Facts {
    Facts() noexcept : numbers() {}
    Facts(const NamedNumbers& facts) noexcept : numbers(facts) {}
    Facts(const CallFacts& facts) noexcept : call(facts) {}
    Facts(const PhaseFacts& facts) noexcept : phase(facts) {}

    NamedNumbers numbers;  ///< Of spans and instants.
    CallFacts call;
    PhaseFacts phase;
  };

  std::uint64_t begin = 0;  ///< In `Ticks`, or, if `by_clock`, in nanoseconds of `Clock`.
  std::uint64_t end = 0;
  std::uint32_t name = 0;
  std::uint16_t track = 0;
  Kind kind = Kind::span;
  bool by_clock = false;
  Facts facts{};
};
static_assert(sizeof(Event) == 64 && std::is_trivially_copyable_v<Event>);

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};
using NumberByName = std::unordered_map<std::string, std::uint32_t, StringHash, std::equal_to<>>;

/// Numbers names, from 0. Thread-safe.
class NameTable {
 public:
  /// Number 0 stands for all names beyond the limit.
  NameTable(std::size_t most, std::string_view others) : most_(most) { number(others); }

  std::uint32_t number(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    if (names_.size() == most_) return 0;
    const auto number = static_cast<std::uint32_t>(names_.size());
    names_.emplace_back(name);
    numbers_.emplace(name, number);
    return number;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  NumberByName numbers_;
};

/// The newest events of one thread. Only that thread adds events, without a lock except once in 1024 events;
/// any thread may read meanwhile.
class EventRing {
 public:
  static constexpr std::size_t block_events = 1024;

  /// One block more than `most` events need, because one is always being filled.
  explicit EventRing(std::size_t most) : most_blocks_((most + block_events - 1) / block_events + 1) {
    blocks_.push_back(std::make_unique_for_overwrite<Block>());
    newest_ = blocks_.back().get();
  }

  /// Only for the owning thread.
  void add(const Event& event) {
    if (used_ == block_events) next_block();
    std::memcpy(newest_->memory.data() + used_ * sizeof event, &event, sizeof event);
    newest_->used.store(++used_, std::memory_order_release);
  }

  struct Kept {
    std::vector<Event> events;  ///< At least the newest `most`, oldest first.
    std::uint64_t dropped = 0;  ///< Number of older events.
  };
  [[nodiscard]] Kept kept() const {
    const std::lock_guard lock(mutex_);
    Kept kept{.events = {}, .dropped = dropped_};
    for (const std::unique_ptr<Block>& block : blocks_) {
      const auto* const first = reinterpret_cast<const Event*>(block->memory.data());
      kept.events.insert(kept.events.end(), first, first + block->used.load(std::memory_order_acquire));
    }
    return kept;
  }

 private:
  struct Block {
    std::atomic<std::size_t> used = 0;
    alignas(Event) std::array<std::byte, block_events * sizeof(Event)> memory;
  };

  /// Reuses the oldest block at the limit, or if there is no memory for another one.
  void next_block() {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Block> next(blocks_.size() < most_blocks_ ? new (std::nothrow) Block : nullptr);
    if (!next) {
      next = std::move(blocks_.front());
      blocks_.pop_front();
      next->used.store(0, std::memory_order_relaxed);
      dropped_ += block_events;
    }
    blocks_.push_back(std::move(next));
    newest_ = blocks_.back().get();
    used_ = 0;
  }

  const std::size_t most_blocks_;
  std::size_t used_ = 0;  // events in the newest block
  Block* newest_ = nullptr;
  mutable std::mutex mutex_;  // protects what follows; keeps blocks from being reused while they are read
  std::deque<std::unique_ptr<Block>> blocks_;
  std::uint64_t dropped_ = 0;
};

/// Records a rank's run: statistics, and events if they are wanted. Thread-safe.
///
/// Memory for events: the newest `events` of each thread, 64 bytes each, for at most 16 threads. Older
/// events, and those of further threads, are counted as dropped. Keeps 65,535 names of at most 200
/// characters.
class RunRecorder {
 public:
  struct Settings {
    bool keeps_events = false;
    std::size_t events = std::size_t{1} << 17;
    int ranks = 1;
  };
  static constexpr std::size_t most_threads = 16;
  static constexpr std::size_t longest_name = 200;

  explicit RunRecorder(const Settings& settings);

  [[nodiscard]] bool keeps_events() const noexcept { return settings_.keeps_events; }
  [[nodiscard]] RunStatistics& statistics() noexcept { return statistics_; }
  [[nodiscard]] const RunStatistics& statistics() const noexcept { return statistics_; }
  // These lock only for a name that the thread has not used before. Names beyond the limit become "other".
  std::uint32_t name(std::string_view text);
  std::uint16_t track(std::string_view text);
  void add(const Event& event) {
    if (!settings_.keeps_events) return;
    if (ThreadEvents* const events = own()) {
      events->ring.add(event);
    } else {
      without_room_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  struct Recording {
    std::vector<std::vector<Event>> threads;
    std::vector<std::string> names;   ///< By number.
    std::vector<std::string> tracks;  ///< By number.
    std::uint64_t dropped = 0;
  };
  [[nodiscard]] Recording recording() const;

 private:
  struct ThreadEvents {
    ThreadEvents(std::thread::id of, std::size_t events) : thread(of), ring(events) {}
    std::thread::id thread;
    EventRing ring;
    NumberByName names, tracks;
  };
  static std::uint32_t number(NumberByName* known, NameTable& all, std::string_view text);
  ThreadEvents* own() { return found_last_.recorder == id_ ? found_last_.events : find_own(); }
  ThreadEvents* find_own();

  /// The result of a thread's last lookup.
  struct Found {
    std::uint64_t recorder = 0;
    ThreadEvents* events = nullptr;
  };
  static thread_local constinit Found found_last_;

  const Settings settings_;
  const std::uint64_t id_;  // unique among all recorders of the process
  RunStatistics statistics_;
  NameTable names_, tracks_;
  std::atomic<std::uint64_t> without_room_ = 0;
  mutable std::mutex mutex_;
  std::deque<ThreadEvents> threads_;
};

/// Adds its lifetime to the waited time. `recorder` may be null.
class CountedWait {
 public:
  explicit CountedWait(RunRecorder* recorder) noexcept
      : recorder_(recorder), begin_(recorder == nullptr ? 0 : Ticks::now()) {}
  CountedWait& operator=(CountedWait&&) = delete;
  ~CountedWait() {
    if (recorder_ != nullptr) recorder_->statistics().waited(Ticks::now() - begin_);
  }

 private:
  RunRecorder* recorder_;
  std::uint64_t begin_;
};

}  // namespace ddl::collectives
