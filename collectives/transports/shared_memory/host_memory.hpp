#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/memory/doorbell.hpp"
#include "collectives/memory/mapping.hpp"
#include "collectives/system/bootstrap.hpp"
#include "collectives/system/descriptors.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

class Heap;
class ProcessHeap;

/// An address that means the same to all who share a `HostMemory`.
using SharedAddress = std::uint64_t;

/// Tells a member about one message: where its bytes are, or the bytes themselves, or that it is done with
/// them.
struct Notice {
  enum class Kind : std::uint32_t {
    here,    ///< The bytes are in the notice (at most `most_inline`).
    parcel,  ///< They are in the parcel that belongs to the notice's place in its ring.
    open,    ///< They are at `address`, until a `read` comes back.
    lent,  ///< As `open`; if the receiver can, it writes message `answer` of the other way to `answer_at` and
           ///< sends `answered` in place of both `read` and that message.
    read,  ///< The message, which went the other way, has been read.
    answered,  ///< It has been read, and its answer written.
  };
  static constexpr std::size_t most_inline = 24;

  MessageTag tag;  ///< Ranks whose fingerprints differ must not mix data.
  std::uint32_t bytes;
  Kind kind;
  std::uint32_t answer;
  union {
    struct {
      SharedAddress address;
      SharedAddress answer_at;
    };
    std::array<std::byte, most_inline> inlined;
  };
};

/// A place for a notice in a ring. One cache line.
struct alignas(64) NoticeSlot : Notice {
  std::atomic<std::uint64_t> stamp;  ///< 1 + its position in the stream of notices: it is complete.
};
static_assert(sizeof(NoticeSlot) == 64);

/// Who has read how much of one ring.
struct alignas(64) RingState {
  std::atomic<std::uint64_t> read;
};

/// What the others know of one member.
struct alignas(128) MemberState {
  Doorbell bell;
  std::atomic<std::uint32_t> left;  ///< Has left the job in order.
  std::atomic<std::int32_t> core;   ///< 1 + the core it was on when it last had to wait; 0: unknown.
};

/// Memory that the ranks of a host share: all of them processes, or all of them threads of one process.
///
/// It holds each member's doorbell, a ring of notices with their parcels for each ordered pair of members,
/// and a heap for each member. Between processes it is one anonymous file (memfd), mapped whole by each of
/// them; pages take up memory when they are first touched, and vanish with the last process. Heaps are as
/// large as the machine's memory, if the system allows so much address space. Between threads every address
/// of the process is shared, and heaps are the process's own.
///
/// Thread-safe where it says so.
class HostMemory {
 public:
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  /// For `members` threads of this process. The result is shared by all of them. Throws `transport` if there
  /// is no address space.
  static std::shared_ptr<HostMemory> in_process(int members);
  /// For `members` processes; this one is member `index`. `events`: the members' eventfds, by index. `file`
  /// is what the others pass to `open`. Throws `transport` if the system refuses.
  static std::shared_ptr<HostMemory> create(int members, int index, const JobToken& token,
                                            std::vector<FileDescriptor> events, FileDescriptor& file);
  /// Throws `transport` unless it is such memory for so many members and has that token.
  static std::shared_ptr<HostMemory> open(int members, int index, const JobToken& token,
                                          std::vector<FileDescriptor> events, const FileDescriptor& file);

  [[nodiscard]] int members() const noexcept { return members_; }

  /// The address of [data, data + bytes) if all of it is shared. Any thread.
  [[nodiscard]] std::optional<SharedAddress> address_of(const void* data, std::size_t bytes) const noexcept {
    const auto start = reinterpret_cast<std::uintptr_t>(data) - base_;
    if (start > size_ || bytes > size_ - start) return std::nullopt;
    return start;
  }
  /// What is at an address that a member gave; null unless [address, address + bytes) is shared. Any thread.
  [[nodiscard]] std::byte* at(SharedAddress address, std::size_t bytes) const noexcept {
    if (address > size_ || bytes > size_ - address) return nullptr;
    return reinterpret_cast<std::byte*>(base_ + address);
  }

  /// `bytes` bytes of shared memory, zeros, aligned to 64, from 1 MiB on to 2 MiB. Returns null if there is
  /// no more. Any thread of the member `index`, which between processes is this one.
  [[nodiscard]] void* allocate(int index, std::size_t bytes);
  /// Gives it back, and from 1 MiB on its pages to the system. Any thread of that member. Null is allowed.
  void release(int index, void* data) noexcept;
  /// Bytes that each member can allocate at most.
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return heap_bytes_; }

  [[nodiscard]] MemberState& member(int index) const noexcept { return member_states_[index]; }
  /// Rings a member's bell, writing to its eventfd if it has to be. Any thread.
  void ring(int index) const noexcept {
    if (member(index).bell.ring()) signal(index);
  }
  void ring_loudly(int index) const noexcept {
    if (member(index).bell.ring_loudly()) signal(index);
  }
  /// A member's eventfd; it does not block. Between threads it is made at the first call: throws `transport`
  /// if there are no more. Any thread.
  [[nodiscard]] int event_descriptor(int index) const;

  /// Rings of notices: `notices_per_ring` (a power of two) for each ordered pair, each with a parcel of
  /// `parcel_bytes`. Fewer and smaller with many members.
  [[nodiscard]] std::size_t notices_per_ring() const noexcept { return notices_per_ring_; }
  [[nodiscard]] std::size_t parcel_bytes() const noexcept { return parcel_bytes_; }
  [[nodiscard]] NoticeSlot* notices(int from, int to) const noexcept {
    return notices_ + pair(from, to) * notices_per_ring_;
  }
  [[nodiscard]] std::byte* parcels(int from, int to) const noexcept {
    return parcels_ + pair(from, to) * notices_per_ring_ * parcel_bytes_;
  }
  [[nodiscard]] RingState& ring_state(int from, int to) const noexcept {
    return ring_states_[pair(from, to)];
  }

  /// A member's flight recorder; the others read it when the member cannot answer any more.
  [[nodiscard]] FlightTape& tape(int index) const noexcept { return tapes_[index]; }

 private:
  /// Shared by processes unless `heap_bytes` is 0.
  HostMemory(int members, int index, Mapping mapping, std::size_t heap_bytes,
             std::vector<FileDescriptor> events);

  [[nodiscard]] std::size_t pair(int from, int to) const noexcept {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(members_) + static_cast<std::size_t>(to);
  }
  void signal(int index) const noexcept;

  int members_;
  int index_;  // -1: all threads'
  std::uintptr_t base_ = 0;
  std::size_t size_ = std::numeric_limits<std::size_t>::max();
  std::size_t notices_per_ring_;
  std::size_t parcel_bytes_;
  MemberState* member_states_;
  FlightTape* tapes_;
  RingState* ring_states_;
  NoticeSlot* notices_;
  std::byte* parcels_;

  std::size_t heap_bytes_;
  Mapping mapping_;
  std::unique_ptr<Heap> heap_;                  // of member `index_`
  std::unique_ptr<ProcessHeap> process_heap_;   // of all threads
  std::unique_ptr<std::atomic<int>[]> events_;  // by member; -1: none yet
};

/// What became of the shared memory of all hosts, as every rank sees it.
struct HostMemories {
  /// This rank's; null if it is alone on its host, or if its host's ranks could not share. Its members are
  /// the host's ranks, ascending.
  std::shared_ptr<HostMemory> own;
  /// This rank's index among the members; 0 without memory.
  int member = 0;
  /// By host: why its ranks cannot share memory; empty if they can.
  std::vector<std::string> obstacles;
};

/// Collective. The lowest rank of each host creates the memory and hands it, with all members' eventfds, to
/// the host's other ranks over a Unix socket without a place in the file system, so that nothing is left
/// behind however the job ends. All ranks of a host use the memory, or none. With m ranks on a host each of
/// them needs m file descriptors, the lowest one 2m.
///
/// Throws nothing of its own: what goes wrong on a host is its obstacle.
HostMemories open_host_memory(Bootstrap& bootstrap, const topology::RankMap& map);

}  // namespace ddl::collectives
