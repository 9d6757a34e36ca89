#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/memory/file_descriptor.hpp"
#include "collectives/watch/fork_guard.hpp"
#include "collectives/watch/frames.hpp"

namespace ddl::collectives {

/// Listens for TCP connections: of this machine's processes alone, or of everybody. Throws `transport`.
struct Listener {
  explicit Listener(bool loopback_only);
  FileDescriptor socket;
  std::uint16_t port = 0;
};

/// One end of a TCP connection that frames go through. Never blocks. Forked children do not have it.
class Connection {
 public:
  explicit Connection(FileDescriptor socket);

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// Takes what has come. False: the other end is gone.
  bool receive();
  /// As `FrameReader::next`.
  std::optional<Frame> next(unsigned kinds) { return reader_.next(kinds); }

  /// Sends as much as goes; the rest with `flush`.
  void send(const Frame& frame);
  void flush();
  [[nodiscard]] bool has_more_to_send() const noexcept { return !to_send_.empty(); }
  /// For a moment, if it has to be.
  void flush_for(std::chrono::milliseconds time);

 private:
  FileDescriptor socket_;
  ForkGuard guard_;  // goes before the socket
  FrameReader reader_;
  std::string to_send_;
};

/// The first of `addresses` (IPv4 or IPv6, in numbers) that answers at `port`. Throws `transport` if none
/// does until then, naming them and why.
FileDescriptor connect_to_first(const std::vector<std::string>& addresses, std::uint16_t port,
                                std::chrono::steady_clock::time_point until);

}  // namespace ddl::collectives
