#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/system/descriptors.hpp"

namespace ddl::collectives {

/// A message between a rank and the hub of watches.
struct Frame {
  enum class Kind : std::uint16_t { hello = 1, welcome, failure, state, report, leave };
  Kind kind = Kind::hello;
  std::string body = {};
};

/// Serializes a frame: "DDLw", version (2 bytes), kind (2), length of the body (4), all little-endian, then
/// the body.
std::string encoded(const Frame& frame);

/// Splits the bytes of a connection into frames. Checks the header before it waits for, or returns, a body,
/// because the peer may be a stranger.
class FrameReader {
 public:
  static constexpr std::size_t header_bytes = 12;

  void put(std::string_view bytes) { bytes_.append(bytes); }
  /// Returns the next complete frame, if any. `kinds`: the kinds that are allowed now, as a mask of `bit`s.
  /// Throws `corrupt_data` for anything else; the reader is unusable afterwards.
  std::optional<Frame> next(unsigned kinds);

  [[nodiscard]] static constexpr unsigned bit(Frame::Kind kind) noexcept {
    return 1U << static_cast<unsigned>(kind);
  }

 private:
  std::string bytes_;
};

/// While a guard lives, children that the process forks close the descriptor at once: if a child kept the
/// connection open, the peer would not notice this process's death. O_CLOEXEC covers `exec`. Thread-safe. The
/// guarded descriptor must not be used or closed in a forked child.
class ForkGuard {
 public:
  explicit ForkGuard(int descriptor);
  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&& other) noexcept;
  ~ForkGuard();

 private:
  int descriptor_;
};

/// Listens for TCP connections, from this machine only or from anywhere. Throws `transport`.
struct Listener {
  explicit Listener(bool loopback_only);
  FileDescriptor socket;
  std::uint16_t port = 0;
};

/// One end of a TCP connection that carries frames. Only `flush_for` blocks. Forked children do not inherit
/// it.
class Connection {
 public:
  explicit Connection(FileDescriptor socket);

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// Reads all bytes that have arrived. Returns false if the peer has closed the connection.
  bool receive();
  std::optional<Frame> next(unsigned kinds) { return reader_.next(kinds); }

  /// Sends as much as the socket takes now; `flush` sends the rest.
  void send(const Frame& frame);
  void flush();
  [[nodiscard]] bool has_more_to_send() const noexcept { return !to_send_.empty(); }
  /// Waits up to `time` for the pending bytes to be sent.
  void flush_for(std::chrono::milliseconds time);

 private:
  FileDescriptor socket_;
  ForkGuard guard_;  // declared after the socket, so that it is destroyed first
  FrameReader reader_;
  std::string to_send_;
};

/// Connects to the first of `addresses` (numeric IPv4 or IPv6) that answers at `port`. If none answers by
/// `until`, throws `transport` with each address and its error.
FileDescriptor connect_to_first(const std::vector<std::string>& addresses, std::uint16_t port,
                                Clock::time_point until);

}  // namespace ddl::collectives
