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
#include "collectives/memory/heap.hpp"
#include "collectives/system/bootstrap.hpp"
#include "collectives/system/descriptors.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

class Heap;

/// An address that means the same to all members of a `HostMemory`.
using SharedAddress = std::uint64_t;

/// Tells a member about a message: where its bytes are, the bytes themselves, or an acknowledgement.
struct Notice {
  enum class Kind : std::uint32_t {
    here,    ///< The notice holds the bytes (at most `most_inline`).
    parcel,  ///< The bytes are in the parcel of the notice's slot.
    open,    ///< The bytes stay at `address` until a `read` comes back.
    lent,    ///< Like `open`. The receiver may also write its message `answer` to `answer_at` and send
             ///< `answered`, which replaces both `read` and that message.
    copied,  ///< Like `open`, but nothing comes back: the receiver writes 0 to the byte at `unread` instead.
    handed,  ///< Like `open`, but nothing comes back: the bytes are in the pair's turn block `answer`, which
             ///< the receiver may write to once it has read them.
    read,    ///< The receiver has read the message.
    answered,  ///< The receiver has read the message and written its answer.
  };
  static constexpr std::size_t most_inline = 24;

  MessageTag tag;  ///< Compared by the receiver, so that different calls do not mix data.
  std::uint32_t bytes;
  Kind kind;
  std::uint32_t answer;
  union {
    struct {
      SharedAddress address;
      union {
        SharedAddress answer_at;
        SharedAddress unread;
      };
    };
    std::array<std::byte, most_inline> inlined;
  };
};

/// A slot of a ring of notices. One cache line.
struct alignas(64) NoticeSlot : Notice {
  std::atomic<std::uint64_t> stamp;  ///< 1 + the notice's position in the stream, stored once it is complete.
};
static_assert(sizeof(NoticeSlot) == 64);

/// How far the receiver has read a ring.
struct alignas(64) RingState {
  std::atomic<std::uint64_t> read;
};

/// A member's state that other members read.
struct alignas(128) MemberState {
  Doorbell bell;
  std::atomic<std::uint32_t> left;  ///< Set when the member has left the job normally.
  std::atomic<std::int32_t> core;   ///< 1 + the core it was on when it last waited; 0 if unknown.
};

/// Memory that the ranks of a host share: either all of them are processes, or all are threads of one
/// process.
///
/// It holds each member's doorbell, a ring of notices with their parcels for each ordered pair of members,
/// blocks that each pair writes in turns, and a heap for each member. Between processes it is one anonymous
/// file (memfd) that each of them maps completely; pages take up memory at first touch, and vanish with the
/// last process. Heaps are as large as the machine's memory, if the system allows so much address space.
/// Between threads every address of the process is shared, and blocks come from the process's own memory.
///
/// Functions are thread-safe where noted.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  HostMemory& operator=(HostMemory&&) = delete;
  ~HostMemory();

  /// For `members` threads of this process, which share the result. Throws `transport` if there is no address
  /// space left.
  static std::shared_ptr<HostMemory> in_process(int members);
  /// For `members` processes; this one is member `index`. `events`: the members' eventfds, by index. The
  /// other members must pass `file` to `open`. Throws `transport` if a system call fails.
  static std::shared_ptr<HostMemory> create(int members, int index, const JobToken& token,
                                            std::vector<FileDescriptor> events, FileDescriptor& file);
  /// Throws `transport` unless `file` is such memory, for `members` members and with this token.
  static std::shared_ptr<HostMemory> open(int members, int index, const JobToken& token,
                                          std::vector<FileDescriptor> events, const FileDescriptor& file);

  [[nodiscard]] int members() const noexcept { return members_; }

  /// The shared address of [data, data + bytes), if all of it is shared. Thread-safe.
  [[nodiscard]] std::optional<SharedAddress> address_of(const void* data, std::size_t bytes) const noexcept {
    const auto start = reinterpret_cast<std::uintptr_t>(data) - base_;
    if (start > size_ || bytes > size_ - start) return std::nullopt;
    return start;
  }
  /// The pointer for an address that a member sent; null unless [address, address + bytes) is shared.
  /// Thread-safe.
  [[nodiscard]] std::byte* at(SharedAddress address, std::size_t bytes) const noexcept {
    if (address > size_ || bytes > size_ - address) return nullptr;
    return reinterpret_cast<std::byte*>(base_ + address);
  }

  /// Returns `bytes` zeroed bytes of shared memory, aligned to 64, or to 2 MiB from 1 MiB on; null if there
  /// is no room. The block keeps this memory alive; pages of blocks of 1 MiB or more go back to the system
  /// with it. Any thread of member `index`, which between processes must be this one.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(int index, std::size_t bytes);
  /// The most that each member can allocate.
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return heap_bytes_; }

  [[nodiscard]] MemberState& member(int index) const noexcept { return member_states_[index]; }
  /// Rings a member's bell, and signals its eventfd if necessary. Thread-safe.
  void ring(int index) const noexcept {
    if (member(index).bell.ring()) signal(index);
  }
  void ring_loudly(int index) const noexcept {
    if (member(index).bell.ring_loudly()) signal(index);
  }
  /// A member's non-blocking eventfd. Between threads it is created at the first call, which throws
  /// `transport` if there are no descriptors left. Thread-safe.
  [[nodiscard]] int event_descriptor(int index) const;

  /// Rings of notices for each ordered pair of members: `notices_per_ring` notices (a power of two), each
  /// with a parcel of `parcel_bytes`. Both shrink with the number of members.
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

  /// Blocks that two members write in turns, for copies of at most `turn_bytes` at any place in a page. At
  /// first the lower member may write to the blocks 0 and 1, and the other one to 2 and 3.
  static constexpr std::size_t turn_blocks = 4;
  [[nodiscard]] std::size_t turn_bytes() const noexcept { return turn_bytes_; }
  [[nodiscard]] std::byte* turn_block(int lower, int higher, std::size_t block) const noexcept;

  /// A member's flight recorder; other members read it when the member can no longer answer.
  [[nodiscard]] FlightTape& tape(int index) const noexcept { return tapes_[index]; }

 private:
  /// Shared between processes unless `heap_bytes` is 0.
  HostMemory(int members, int index, Mapping mapping, std::size_t heap_bytes,
             std::vector<FileDescriptor> events);

  [[nodiscard]] std::size_t pair(int from, int to) const noexcept {
    return as_index(from) * as_index(members_) + as_index(to);
  }
  void signal(int index) const noexcept;

  int members_;
  int index_;  // -1 between threads
  std::uintptr_t base_ = 0;
  std::size_t size_ = std::numeric_limits<std::size_t>::max();
  std::size_t notices_per_ring_;
  std::size_t parcel_bytes_;
  MemberState* member_states_;
  FlightTape* tapes_;
  RingState* ring_states_;
  NoticeSlot* notices_;
  std::byte* parcels_;
  std::size_t turn_bytes_;
  std::byte* turn_blocks_;

  std::size_t heap_bytes_;
  Mapping mapping_;
  std::unique_ptr<Heap> heap_;                  // of member `index_`; null between threads
  std::unique_ptr<std::atomic<int>[]> events_;  // by member; -1 until created
};

/// The shared memory of all hosts, as each rank sees it.
struct HostMemories {
  /// This rank's; null if it is alone on its host, or if the ranks of its host cannot share memory. Members
  /// are the host's ranks, in ascending order.
  std::shared_ptr<HostMemory> own;
  /// This rank's index among the members; 0 if there is no memory.
  int member = 0;
  /// By host: why its ranks cannot share memory; empty if they do.
  std::vector<std::string> obstacles;
};

/// Collective. The lowest rank of each host creates the memory and sends it, with all members' eventfds, to
/// the host's other ranks over an abstract Unix socket, so that nothing is left behind however the job ends.
/// All ranks of a host use the memory, or none does. With m ranks on a host each rank needs m file
/// descriptors, and the lowest one 2m.
///
/// Does not throw for failures on a host: they become the host's obstacle.
HostMemories open_host_memory(Bootstrap& bootstrap, const topology::RankMap& map);

}  // namespace ddl::collectives
