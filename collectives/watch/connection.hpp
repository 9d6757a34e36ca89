#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/system/descriptors.hpp"

namespace ddl::collectives {

/// What goes between a rank and the hub of watches.
struct Frame {
  enum class Kind : std::uint16_t { hello = 1, welcome, failure, state, report, leave };
  Kind kind = Kind::hello;
  std::string body = {};
};

/// A frame's bytes: "DDLw", version (2), kind (2), length of the body (4), all little-endian; the body.
std::string encoded(const Frame& frame);

/// Cuts what comes out of a connection into frames. Nothing is believed, or kept, before its header has been
/// checked.
class FrameReader {
 public:
  static constexpr std::size_t header_bytes = 12;

  /// Takes bytes in the order in which they came.
  void put(std::string_view bytes) { bytes_.append(bytes); }
  /// The next frame, of these kinds only (a bit each); nothing if it has not come as a whole. Throws
  /// `corrupt_data`, saying what is wrong; then nothing else can be read.
  std::optional<Frame> next(unsigned kinds);

  [[nodiscard]] static constexpr unsigned bit(Frame::Kind kind) noexcept {
    return 1U << static_cast<unsigned>(kind);
  }

 private:
  std::string bytes_;
};

/// While this lives, children that the process forks close the descriptor at once: a connection whose other
/// end waits for this process's death must not live on in one of its children. Descriptors that children get
/// by `exec` are looked after by O_CLOEXEC. Any thread; cannot be used in a child itself.
class ForkGuard {
 public:
  explicit ForkGuard(int descriptor);
  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&& other) noexcept;
  ~ForkGuard();

 private:
  int descriptor_;
};

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
                                Clock::time_point until);

}  // namespace ddl::collectives
