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

/// Text of an errno value, for example "Too many open files (ulimit -n)".
std::string error_text(int error);
/// Throws `transport` with "<operation> failed: " and the text of errno.
[[noreturn]] void throw_failed(std::string_view operation);

/// Time limit for start-up exchanges with another process of the host.
inline constexpr std::chrono::seconds host_patience{30};

/// Creates an eventfd that wakes a thread from poll. Throws `transport`.
FileDescriptor new_event();
void signal_event(int event) noexcept;
/// Makes the eventfd unreadable until the next signal.
void clear_event(int event) noexcept;

/// Like poll, but restarts after EINTR. Returns 0 if nothing is ready by `until`; `time_point::max()` means
/// no limit.
int poll_until(std::span<pollfd> waiting, Clock::time_point until);

/// A random 128-bit secret. A peer that presents it belongs to the job.
using JobToken = std::array<std::uint64_t, 2>;
/// Throws `transport`.
JobToken draw_token();

// Messages that carry file descriptors between processes of a host (and network namespace). All functions
// throw `transport` if a system call fails, and none waits longer than `host_patience`. Names are those of
// abstract Unix sockets: they have no file, and disappear with their process.
FileDescriptor listen_at(const JobToken& name);
/// `what` names the peer in error messages.
FileDescriptor connect_to(const JobToken& name, std::string_view what);
FileDescriptor accept_from(const FileDescriptor& listener);
/// Whether the process at the other end runs as the same user.
bool is_own_user(const FileDescriptor& connection);

/// The kernel's limit per message (SCM_MAX_FD).
inline constexpr std::size_t most_descriptors = 253;
/// `bytes` must not be empty.
void send_descriptors(const FileDescriptor& connection, std::span<const std::byte> bytes,
                      std::span<const int> descriptors);

struct DescriptorMessage {
  std::size_t bytes = 0;  ///< 0: the peer has closed the connection.
  std::vector<FileDescriptor> descriptors;
};
/// Reads one message into `room` and truncates a longer one. Also throws if the message carries more
/// descriptors than this process may open.
DescriptorMessage receive_descriptors(const FileDescriptor& connection, std::span<std::byte> room);

/// Throws `transport` unless the socket is readable or closed by `until`. `what` names the peer in the
/// message.
void await_readable(const FileDescriptor& socket, Clock::time_point until, std::string_view what);

}  // namespace ddl::collectives
