#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ddl::collectives {

using Clock = std::chrono::steady_clock;

/// A stream of bytes for each ordered pair of ranks. Nothing here blocks but `wait`, so one thread
/// can drive any number of streams. Used by one thread of a rank at a time. Errors: `transport`.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// Appends as much of `bytes` to the stream to `peer` as fits now; returns how much that was.
  virtual std::size_t write_some(int peer, std::span<const std::byte> bytes) = 0;
  /// The bytes that have come from `peer`, or the first of them; valid until `consume`.
  virtual std::span<const std::byte> readable(int peer) = 0;
  /// Drops the first `bytes` of what `readable` returned.
  virtual void consume(int peer, std::size_t bytes) = 0;
  /// True once all that was written goes on without this rank's help.
  virtual bool flushed() { return true; }

  /// Whether what follows goes through the network to all ranks, those that share memory too; the ranks must
  /// switch at the same place of every stream. False if there is no network to do so.
  virtual bool use_network_for_all(bool) { return false; }

  /// Sleeping without missing anything: `prepare_wait`, then look at every stream once more, then
  /// `wait` with the ticket, or `cancel_wait` if something had come. `wait` returns at `until` at the
  /// latest; it may return early and for no reason.
  virtual std::uint32_t prepare_wait() = 0;
  virtual void cancel_wait() = 0;
  virtual void wait(std::uint32_t ticket, Clock::time_point until) = 0;

  /// Some rank that has failed, or -1. Ranks that this transport does not see are never reported.
  [[nodiscard]] virtual int failed_rank() const = 0;
  /// Whether `peer` has left the job in order. What it wrote before that can still be read.
  [[nodiscard]] virtual bool has_left(int peer) const = 0;
  /// Tells the peers that this rank has failed, or has left in order, and wakes them.
  virtual void announce_failure() = 0;
  virtual void announce_leaving() = 0;
};

}  // namespace ddl::collectives
