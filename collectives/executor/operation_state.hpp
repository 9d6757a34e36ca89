#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/executor/operation.hpp"
#include "collectives/executor/staging.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/program/prepared_program.hpp"
#include "collectives/system/clock.hpp"
#include "collectives/system/processor.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"

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

/// The progress of a call. Reused for later calls, so that they allocate nothing.
struct OperationState {
  struct Arrival {
    const std::byte* data = nullptr;               ///< Null until the message has arrived.
    std::byte* held = nullptr;                     ///< The block that holds a copy of the data, if any.
    bool wants_read = false;                       ///< The sender waits for an acknowledgement.
    Staging::Flag* unread = nullptr;               ///< To clear instead, in the sender's memory.
    std::optional<std::uint32_t> turn_block = {};  ///< With the data; this rank's once it is read.
  };
  struct Post {
    SharedAddress answer_at = 0;  ///< Where the peer wants the result.
    std::uint32_t answers = 0;    ///< The peer's message that this post answers.
    bool is_answer = false;
    bool is_written = false;  ///< The reduction before it has already written to `answer_at`.
    bool is_out = false;      ///< The peer has the notice and has not acknowledged it yet.
  };

  Call* placed = nullptr;  ///< `kept`, or the caller's while `Driver::run_small` runs it.
  Call kept;
  std::shared_ptr<WorkState> work;  ///< Null if a thread waits for `done`.
  bool active = false;
  bool done = false;
  bool failed = false;
  std::size_t element = 1;  ///< Size in bytes.
  Clock::time_point started;
  Clock::time_point until;
  /// When to compare this call with those of the host's other ranks: after 1, 2, 4, ... seconds.
  Clock::time_point compare_at;

  std::uint64_t begun = 0;  ///< In `Ticks`; set only if the run is recorded.
  PhaseTimes phase_times;   ///< Used only if the run is recorded.

  std::size_t unfinished = 0;          ///< Number of runs.
  std::vector<std::uint32_t> missing;  ///< By run: runs and messages that it still waits for.
  std::vector<std::uint64_t> ready;    ///< Heap of the urgencies of runs that can start.
  std::vector<Arrival> arrivals;       ///< By slot.
  std::vector<Post> posts;             ///< By slot.
  std::vector<Staging::Copy> copies;   ///< By `StepWay::copy`.
  std::size_t posts_out = 0;
  std::vector<std::uint32_t> unstaged;  ///< Posts that wait for staging memory.
  std::vector<Transfer> transfers;      ///< By slot.
  /// By slot: received data before it is reduced or widened, or the narrow copy of a range to send.
  std::vector<std::byte*> blocks;
  std::vector<std::uint32_t> transferring;
  std::vector<std::uint32_t> unsent;  ///< Network sends beyond the limit of sends in flight.
  std::size_t sending = 0;
  std::optional<Clock::time_point> sent_by;  ///< Once all runs are complete, but not all data has left.
  std::size_t next_net_reduce = 0;
  std::size_t receiving_blocks = 0;

  Stores stores = Stores::automatic;
  bool delivers_sent = false;                     ///< Copies input to the output when it sends it.
  std::vector<PreparedProgram::Range> delivered;  ///< Input that is in the output already.
  bool input_was_copied = false;                  ///< Into the output's place.
  bool all_in_work = false;                       ///< The output too is in work memory until the end.
  std::shared_ptr<std::byte> scratch;
  std::size_t scratch_bytes = 0;
  std::shared_ptr<std::byte> work_memory;
  std::size_t work_bytes = 0;

  [[nodiscard]] Call& call() const noexcept { return *placed; }
  void keep(Call call) {
    kept = std::move(call);
    placed = &kept;
  }
  [[nodiscard]] const PreparedProgram& program() const noexcept { return *call().program; }

  /// Copies to the call's output. `by`: for output that stays in the caches.
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes, CopyBy by) const noexcept {
    stores == Stores::streaming ? copy_streaming(to, from, bytes) : copy_bytes(to, from, bytes, by);
  }
  [[nodiscard]] const topology::Step& step(std::uint32_t index) const noexcept {
    return call().program->step(index);
  }
  [[nodiscard]] const StepWay& way(std::uint32_t index) const noexcept { return call().program->way(index); }
  [[nodiscard]] Arrival& arrival(std::uint32_t step) noexcept { return arrivals[way(step).slot]; }
  [[nodiscard]] Post& post(std::uint32_t step) noexcept { return posts[way(step).slot]; }
  /// The copy in shared memory of what a send to a member reads.
  [[nodiscard]] Staging::Copy& copy(std::uint32_t send) noexcept { return copies[way(send).copy]; }
  [[nodiscard]] MessageTag tag(std::uint32_t message) const noexcept {
    return {call().channel(), static_cast<std::uint16_t>(call().sequence), message, call().fingerprint};
  }
  [[nodiscard]] std::size_t bytes_of(std::uint32_t index) const noexcept {
    return step(index).size() * (step(index).narrow ? size_of(program().program().wire) : element);
  }

  /// Where the element at `begin`, and the range that starts there, is written.
  [[nodiscard]] std::byte* target(std::size_t begin) const noexcept {
    const std::size_t count = call().program->count();
    if (begin >= count) return scratch.get() + (begin - count) * element;
    const bool in_output = begin >= call().buffers.begin && begin < call().buffers.end && !all_in_work;
    return in_output ? call().buffers.output + begin * element : work_memory.get() + begin * element;
  }
  [[nodiscard]] std::byte* target_of(std::uint32_t index) const noexcept { return target(step(index).begin); }
  /// Where it is read. `is_input`: it has not been written yet.
  [[nodiscard]] const std::byte* source(std::size_t begin, bool is_input) const noexcept {
    if (is_input && !input_was_copied) return call().buffers.input + begin * element;
    return target(begin);
  }
  [[nodiscard]] const std::byte* range_of(std::uint32_t index) const noexcept {
    return source(step(index).begin, way(index).reads_input);
  }
  [[nodiscard]] const std::byte* source_of(std::uint32_t index) const noexcept {
    return source(step(index).source, way(index).source_is_input);
  }

  /// How many messages from members the run still waits for.
  [[nodiscard]] std::uint32_t arrivals_missing(std::uint32_t first) const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t i = first; i < call().program->end_of_run(first); ++i) {
      if (is_receive(step(i).kind) && !way(i).by_network() && arrivals[way(i).slot].data == nullptr) ++count;
    }
    return count;
  }

  void make_ready(std::uint32_t index) {
    ready.push_back(call().program->urgency(index));
    std::push_heap(ready.begin(), ready.end(), std::greater<>());
  }
  [[nodiscard]] std::uint32_t take_ready() {
    std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    const auto index = static_cast<std::uint32_t>(ready.back());
    ready.pop_back();
    return index;
  }
};

/// This rank's end of the two rings of notices that it shares with another member.
class MemberLink {
 public:
  /// A notice that did not fit into the ring: a send (if `operation` is set) or an acknowledgement.
  struct Waiting {
    OperationState* operation = nullptr;
    std::uint32_t step = 0;
    MessageTag tag = {};
    Notice::Kind kind = Notice::Kind::read;
  };

  MemberLink(HostMemory& memory, int self, int peer_index, int peer_rank)
      : peer(peer_index),
        rank(peer_rank),
        turn_blocks(memory, self, peer_index),
        memory_(memory),
        mask_(memory.notices_per_ring() - 1),
        out_(memory.notices(self, peer_index)),
        out_parcels_(memory.parcels(self, peer_index)),
        out_state_(memory.ring_state(self, peer_index)),
        in_(memory.notices(peer_index, self)),
        in_parcels_(memory.parcels(peer_index, self)),
        in_state_(memory.ring_state(peer_index, self)) {}

  const int peer;  ///< Index in the host's memory.
  const int rank;  ///< Rank in the job.
  std::deque<Waiting> outbox;
  int listeners = 0;  ///< Operations in flight that exchange messages with the peer.
  TurnBlocks turn_blocks;

  [[nodiscard]] bool is_full() noexcept {
    if (written_ - read_by_peer_ <= mask_) return false;
    read_by_peer_ = out_state_.read.load(std::memory_order_seq_cst);
    return written_ - read_by_peer_ > mask_;
  }
  /// The next free notice, with its header filled in. The ring must not be full.
  Notice& next(const MessageTag& tag, Notice::Kind kind, std::size_t bytes = 0) noexcept {
    Notice& notice = out_[written_ & mask_];
    notice.tag = tag;
    notice.kind = kind;
    notice.bytes = static_cast<std::uint32_t>(bytes);
    return notice;
  }
  /// Sends the notice that `next` returned.
  void publish() noexcept {
    out_[written_ & mask_].stamp.store(written_ + 1, std::memory_order_seq_cst);
    ++written_;
    memory_.ring(peer);
  }
  /// How many bytes of a message are fetched before they are needed: of 2 KiB, both ends lose time.
  static constexpr std::size_t most_fetched = 1024;
  /// Begins to take the cache lines that `send_small` will write away from the peer.
  void prepare_small(std::size_t bytes) noexcept {
    if (bytes <= Notice::most_inline) {
      const NoticeSlot& slot = out_[written_ & mask_];
      return fetch_for_writing(reinterpret_cast<const std::byte*>(&slot), sizeof slot);
    }
    fetch_for_writing(out_parcel(), std::min(bytes, most_fetched));
  }
  /// Sends a notice that carries the message's bytes.
  void send_small(const MessageTag& tag, const std::byte* data, std::size_t bytes) noexcept {
    if (bytes <= Notice::most_inline) {
      std::memcpy(next(tag, Notice::Kind::here, bytes).inlined.data(), data, bytes);
    } else {
      // Before the notice, whose cache line the receiver polls: it would take that away in between.
      std::memcpy(out_parcel(), data, bytes);
      next(tag, Notice::Kind::parcel, bytes);
    }
    publish();
  }

  /// The next notice that has arrived; null if there is none.
  [[nodiscard]] const Notice* arrived() const noexcept {
    const NoticeSlot& slot = in_[read_ & mask_];
    return slot.stamp.load(std::memory_order_seq_cst) == read_ + 1 ? &slot : nullptr;
  }
  [[nodiscard]] const std::byte* arrived_parcel() const noexcept {
    return in_parcels_ + (read_ & mask_) * memory_.parcel_bytes();
  }
  void drop() noexcept { ++read_; }
  /// Lets the peer reuse the slots of dropped notices. A sleeping peer whose ring is full is woken once more
  /// than a quarter of the ring is free.
  void make_room() noexcept {
    const std::uint64_t dropped = read_ - given_back_;
    if (dropped == 0) return;
    given_back_ = read_;
    since_ring_ += dropped;
    if (since_ring_ * 4 <= mask_) return in_state_.read.store(read_, std::memory_order_release);
    since_ring_ = 0;
    in_state_.read.store(read_, std::memory_order_seq_cst);  // before `ring` looks whether the peer sleeps
    memory_.ring(peer);
  }

 private:
  [[nodiscard]] std::byte* out_parcel() const noexcept {
    return out_parcels_ + (written_ & mask_) * memory_.parcel_bytes();
  }

  HostMemory& memory_;
  std::uint64_t mask_;
  NoticeSlot* out_;
  std::byte* out_parcels_;
  RingState& out_state_;
  const NoticeSlot* in_;
  const std::byte* in_parcels_;
  RingState& in_state_;
  std::uint64_t written_ = 0;
  std::uint64_t read_by_peer_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t given_back_ = 0;
  std::uint64_t since_ring_ = 0;
};

}  // namespace ddl::collectives
