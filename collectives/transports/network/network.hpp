#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// Identifies a message of a call. Two messages with equal tags from one rank to another are never in flight
/// at the same time.
struct MessageTag {
  std::uint16_t communicator = 0;
  std::uint16_t call = 0;     ///< Sequence number in the communicator, modulo 2^16; at most 64 are in flight.
  std::uint32_t message = 0;  ///< Index among the call's messages of this pair and direction.
  std::uint32_t fingerprint = 0;  ///< Of the call; networks compare some of its bits, or none.

  friend bool operator==(const MessageTag&, const MessageTag&) = default;
};

/// A send or a receive. Its owner keeps it, and the transferred memory, in place until it is over.
struct Transfer {
  enum class State : std::uint8_t { idle, active, done, failed };
  State state = State::idle;
  void* handle = nullptr;  ///< Owned by the network.

  [[nodiscard]] bool over() const noexcept { return state >= State::done; }
};

/// Messages between ranks that share no memory. Nothing here blocks. Used by one thread at a time, which may
/// be any thread unless `any_thread` is false. A receive must be exactly as long as its message, and both
/// below 2 GiB. Messages
/// with equal tags from one rank to another arrive in the order in which they were sent.
class Network {
 public:
  Network& operator=(Network&&) = delete;
  virtual ~Network() = default;

  /// For logs: "ucx (tcp)", "mpi".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Its tags can tell communicators below this number apart.
  [[nodiscard]] virtual int communicators() const { return 1 << 14; }

  /// If false, only the thread that created the network may use it.
  [[nodiscard]] virtual bool any_thread() const { return true; }

  /// A transfer may be over on return. Throw `transport` if the peer cannot be reached at all, and
  /// `unsupported` if the tag does not fit.
  virtual void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) = 0;
  virtual void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) = 0;

  /// Whether a message has arrived from the peer for this call that cannot belong to it: with another
  /// fingerprint, or in the other of the communicator's two channels (they differ in the lowest bit). False
  /// if the network cannot tell.
  [[nodiscard]] virtual bool has_other(int /*peer*/, MessageTag /*tag*/) const { return false; }

  /// Makes progress on all transfers, also those of peers. Must be called for as long as this rank waits for
  /// anything. Returns true if a transfer has ended since the last call.
  virtual bool progress() = 0;

  /// Whether completed sends may still be in buffers of this process and need `progress` to leave: if any has
  /// completed since `holds_back` last returned false.
  [[nodiscard]] virtual bool may_hold_back() const { return false; }
  /// Finds out. Too slow for every call: UCX takes 50 us with 16 peers.
  [[nodiscard]] virtual bool holds_back() { return may_hold_back(); }

  /// Readable when `progress` has work to do after `arm` returned true. -1 if the network must be polled.
  [[nodiscard]] virtual int event_descriptor() const { return -1; }
  /// Returns false if something has arrived: call `progress` first.
  virtual bool arm() { return false; }

  /// The first rank whose connection broke although it had not left normally, or -1. Only ranks that have
  /// taken part in a transfer with this rank are watched.
  [[nodiscard]] virtual int failed_peer() const { return -1; }
  /// Why the first transfer failed or the first connection broke; empty if nothing failed.
  [[nodiscard]] virtual std::string failure() const { return {}; }

  /// For a failed job: nothing waits afterwards, not even the destructor. Transfers in flight are dropped,
  /// and their memory is not accessed again.
  virtual void abandon() noexcept = 0;
};

}  // namespace ddl::collectives
