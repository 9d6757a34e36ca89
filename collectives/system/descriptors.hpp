#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  int release() noexcept;

 private:
  int fd_ = -1;
};

/// "Too many open files (ulimit -n)".
std::string error_text(int error);
/// "bind failed: ...", as errno says: `transport`.
[[noreturn]] void throw_failed(std::string_view operation);

/// How long a process waits for another one of its host.
inline constexpr std::chrono::seconds host_patience{30};

/// An eventfd, to wake a thread that waits for it in poll. Throws `transport`.
FileDescriptor new_event();
void signal_event(int event) noexcept;
/// It is not readable any more until the next signal.
void clear_event(int event) noexcept;

/// As poll, but goes on after a signal; 0 if nothing comes before `until` (`time_point::max()`: waits for
/// ever).
int poll_until(std::span<pollfd> waiting, Clock::time_point until);

/// Random, 128 bits: who knows it belongs to the job.
using JobToken = std::array<std::uint64_t, 2>;
/// Throws `transport`.
JobToken draw_token();

// Messages that carry file descriptors between processes of a host (and network namespace). All throw
// `transport` if the system refuses, and none waits longer than `host_patience`. A name is that of a socket
// that has no place in the file system and vanishes with its process.
FileDescriptor listen_at(const JobToken& name);
/// `what` for messages.
FileDescriptor connect_to(const JobToken& name, std::string_view what);
/// The next one in the queue.
FileDescriptor accept_from(const FileDescriptor& listener);
/// Whether the process at the other end is the same user's.
bool is_own_user(const FileDescriptor& connection);

/// The kernel's limit for one message.
inline constexpr std::size_t most_descriptors = 253;
/// `bytes` must not be empty.
void send_descriptors(const FileDescriptor& connection, std::span<const std::byte> bytes,
                      std::span<const int> descriptors);

struct DescriptorMessage {
  std::size_t bytes = 0;  ///< 0: the other end has closed the connection.
  std::vector<FileDescriptor> descriptors;
};
/// Reads a message of `room` bytes at most; cuts longer ones off. Throws as well if there were more
/// descriptors than this process may open.
DescriptorMessage receive_descriptors(const FileDescriptor& connection, std::span<std::byte> room);

/// Throws `transport` if it is not readable, or closed, at `until`; `what` for messages.
void await_readable(const FileDescriptor& socket, Clock::time_point until, std::string_view what);

}  // namespace ddl::collectives
