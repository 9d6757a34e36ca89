#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// Which message of which call this is. Two messages with equal tags from one rank to another are never under
/// way at the same time.
struct MessageTag {
  std::uint16_t communicator = 0;
  std::uint16_t call = 0;     ///< Sequence number in the communicator, modulo 2^16; at most 64 are under way.
  std::uint32_t message = 0;  ///< Index among the call's messages of this pair and direction.
  std::uint32_t fingerprint = 0;  ///< What is called; networks may compare a part of it, or nothing.

  friend bool operator==(const MessageTag&, const MessageTag&) = default;
};

/// A send or a receive. Its owner keeps it, and the memory it is about, where they are until it is over.
struct Transfer {
  enum class State : std::uint8_t { idle, active, done, failed };
  State state = State::idle;
  void* handle = nullptr;  ///< The network's own.

  [[nodiscard]] bool over() const noexcept { return state >= State::done; }
};

/// Messages between ranks that share no memory. Nothing here blocks. One thread of a rank at a time, any
/// thread unless `any_thread` says otherwise. A receive must be as long as its message. Messages with equal
/// tags from one rank to another arrive in the order in which they were sent.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// "ucx (tcp)", "mpi": for logs.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Communicators that its tags tell apart: those with lower numbers.
  [[nodiscard]] virtual int communicators() const { return 1 << 14; }

  /// False: only the thread that made it may use it.
  [[nodiscard]] virtual bool any_thread() const { return true; }

  /// Either may be over when it returns. Throw `transport` if the peer cannot be reached at all, and
  /// `unsupported` if the tag does not fit.
  virtual void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) = 0;
  virtual void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) = 0;

  /// Whether something has come from the peer for this call that cannot be part of it: another fingerprint,
  /// or a channel that is not the call's (they differ by the lowest bit). False where a network cannot tell.
  [[nodiscard]] virtual bool has_other(int /*peer*/, MessageTag /*tag*/) const { return false; }

  /// Moves what can be moved, the peers' transfers as well: to be called for as long as this rank waits for
  /// anything. True if some transfer has come to its end since the last call.
  virtual bool progress() = 0;

  /// Whether sends that are over may still be in buffers of this process, and need `progress` to leave it. It
  /// may be unknown: then this is true until a `flush` that began after them has come to its end.
  [[nodiscard]] virtual bool may_hold_back() const { return false; }
  /// Begins to make sure that what was sent has left. It can take messages to the peers and back, which they
  /// answer when their libraries move on: not for every call.
  virtual void flush() {}

  /// Readable when `progress` has something to do after `arm` returned true. -1: there is none, one has to
  /// look again and again.
  [[nodiscard]] virtual int event_descriptor() const { return -1; }
  /// False: something has come; `progress` first.
  virtual bool arm() { return false; }

  /// The first rank whose connection broke though it had not left in order, or -1. Only ranks to or from
  /// which there has been a transfer are watched.
  [[nodiscard]] virtual int failed_peer() const { return -1; }
  /// Why the first transfer failed, or the first connection broke. Empty if nothing has.
  [[nodiscard]] virtual std::string failure() const { return {}; }

  /// The job fails: waits for nothing from here on, not in the destructor either. What is under way is
  /// forgotten, and never touches the transfers' memory again.
  virtual void abandon() noexcept = 0;
};

}  // namespace ddl::collectives
