#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "collectives/transports/network/ucx_network.hpp"

namespace ddl::collectives {

/// A UCX context with one worker. Functions but the constructor are for one thread at a time.
class UcxWorker {
 public:
  /// Prefers options for `settings` to UCX's own, and the user's (UCX_*) to those. Throws `transport` if UCX
  /// cannot start.
  explicit UcxWorker(const UcxSettings& settings);
  UcxWorker& operator=(UcxWorker&&) = delete;
  ~UcxWorker() { shut(); }
  /// Frees it, once there are no connections.
  void shut() noexcept;

  /// Null after `shut`.
  [[nodiscard]] ucp_worker_h get() const noexcept { return worker_; }
  /// Readable when there is something to do; -1 after `shut`.
  [[nodiscard]] int event_descriptor() const noexcept { return event_descriptor_; }
  /// For peers.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] bool carries_device_memory() const noexcept;

  /// Handles what has arrived.
  void drain() const noexcept;
  /// Ends TCP connections. To close an endpoint, UCX 1.13 repeats `send` until the kernel takes the message:
  /// forever, if the link is cut and the socket's buffer is full.
  void shut_connections_down() const noexcept;
  /// Whether there is data for a TCP connection whose buffer in the kernel is full. A flush of UCX would
  /// tell, but needs the peer's answer, and UCX aborts the process (1.13, built with assertions) if it reads
  /// that after it could not send to the peer, which has failed.
  [[nodiscard]] bool has_unsent_data() const;

 private:
  UcxWorker() = default;

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_descriptor_ = -1;
  std::string address_;
};

/// The network's name in logs: "ucx (tcp eth0)".
std::string name_of(const UcxSettings& settings);

}  // namespace ddl::collectives
