#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/transport.hpp"

namespace ddl::collectives {

/// Streams through MPI: each is cut into messages that are copied through staging buffers, with
/// receives posted ahead. A peer's buffers are allocated when it is first sent to or asked about.
/// MPI gives no way to sleep until something comes: `wait` is never called on this transport.
class MpiTransport final : public Transport {
 public:
  /// `communicator` returns errors instead of ending the job, and outlives the transport.
  explicit MpiTransport(MPI_Comm communicator);
  /// Waits for what was sent, unless a failure was announced.
  ~MpiTransport() override;

  std::size_t write_some(int peer, std::span<const std::byte> bytes) override;
  std::span<const std::byte> readable(int peer) override;
  void consume(int peer, std::size_t bytes) override;
  bool flushed() override;
  std::uint32_t prepare_wait() override { return 0; }
  void cancel_wait() override {}
  void wait(std::uint32_t, Clock::time_point) override {}
  [[nodiscard]] int failed_rank() const override { return -1; }
  [[nodiscard]] bool has_left(int) const override { return false; }
  void announce_failure() override { failed_ = true; }
  void announce_leaving() override {}

 private:
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::byte> bytes;
  };
  struct Outgoing {
    std::vector<Slot> slots;
    std::size_t next = 0;
  };
  struct Incoming {
    std::vector<Slot> slots;
    std::size_t first = 0;   // the slot that is read
    bool arrived = false;    // its message has come
    std::size_t length = 0;  // of that message
    std::size_t used = 0;
  };
  void post(int peer, Slot& slot);

  MPI_Comm communicator_;
  std::vector<Outgoing> outgoing_;  // by rank
  std::vector<Incoming> incoming_;
  std::vector<int> sent_to_;  // ranks with outgoing slots
  bool failed_ = false;
};

}  // namespace ddl::collectives
