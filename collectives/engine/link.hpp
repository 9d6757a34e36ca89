#pragma once

#include <cstdint>
#include <deque>

#include "collectives/transports/network/network.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"

namespace ddl::collectives {

struct OperationState;

/// This rank's end of the two rings of notices that it shares with one member.
class Link {
 public:
  /// What could not be sent because the ring was full: the post of a task, or that a message is done with.
  struct Waiting {
    OperationState* operation = nullptr;
    std::uint32_t task = 0;
    MessageTag tag = {};
    Notice::Kind kind = Notice::Kind::read;
  };

  Link(HostMemory& memory, int self, int peer_index, int peer_rank)
      : peer(peer_index),
        rank(peer_rank),
        memory_(memory),
        mask_(memory.notices_per_ring() - 1),
        out_(memory.notices(self, peer_index)),
        out_parcels_(memory.parcels(self, peer_index)),
        out_state_(memory.ring_state(self, peer_index)),
        in_(memory.notices(peer_index, self)),
        in_parcels_(memory.parcels(peer_index, self)),
        in_state_(memory.ring_state(peer_index, self)) {}

  const int peer;  ///< Index in the memory.
  const int rank;  ///< In the job.
  std::deque<Waiting> outbox;
  int listeners = 0;  ///< Operations with messages from or to the peer.

  [[nodiscard]] bool is_full() noexcept {
    if (written_ - read_by_peer_ <= mask_) return false;
    read_by_peer_ = out_state_.read.load(std::memory_order_seq_cst);
    return written_ - read_by_peer_ > mask_;
  }
  /// The next notice to write, and its parcel. Not if it is full.
  [[nodiscard]] Notice& next() noexcept { return out_[written_ & mask_]; }
  [[nodiscard]] std::byte* next_parcel() noexcept {
    return out_parcels_ + (written_ & mask_) * memory_.parcel_bytes();
  }
  /// Sends it.
  void publish() noexcept {
    next().stamp.store(written_ + 1, std::memory_order_seq_cst);
    ++written_;
    memory_.ring(peer);
  }

  /// The next notice that has come; null if there is none.
  [[nodiscard]] const Notice* arrived() const noexcept {
    const Notice& notice = in_[read_ & mask_];
    return notice.stamp.load(std::memory_order_seq_cst) == read_ + 1 ? &notice : nullptr;
  }
  [[nodiscard]] const std::byte* arrived_parcel() const noexcept {
    return in_parcels_ + (read_ & mask_) * memory_.parcel_bytes();
  }
  void drop() noexcept { ++read_; }
  /// Lets the peer use the places of dropped notices again. A peer that sleeps because its ring is full has a
  /// ring's notices to be read yet, and is woken on the way.
  void make_room() noexcept {
    const std::uint64_t dropped = read_ - given_back_;
    if (dropped == 0) return;
    given_back_ = read_;
    in_state_.read.store(read_, std::memory_order_seq_cst);
    since_ring_ += dropped;
    if (since_ring_ * 4 <= mask_) return;
    since_ring_ = 0;
    memory_.ring(peer);
  }

 private:
  HostMemory& memory_;
  std::uint64_t mask_;
  Notice* out_;
  std::byte* out_parcels_;
  RingState& out_state_;
  const Notice* in_;
  const std::byte* in_parcels_;
  RingState& in_state_;
  std::uint64_t written_ = 0;
  std::uint64_t read_by_peer_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t given_back_ = 0;
  std::uint64_t since_ring_ = 0;
};

}  // namespace ddl::collectives
