#include "collectives/system/descriptors.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topology/refuse.hpp"

namespace ddl::collectives {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}
FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}
int FileDescriptor::release() noexcept { return std::exchange(fd_, -1); }

std::string error_text(int error) {
  const bool has_none_left = error == EMFILE || error == ENFILE;
  return std::string(std::strerror(error)) + (has_none_left ? " (ulimit -n)" : "");
}

void throw_failed(std::string_view operation) {
  const int error = errno;
  fail_with(ErrorCode::transport, "{} failed: {}", operation, error_text(error));
}

namespace {

struct Address {
  explicit Address(const JobToken& name) {
    const std::string text = fmt::format("ddl-{:016x}{:016x}", name[0], name[1]);
    socket.sun_family = AF_UNIX;
    // A leading zero byte makes it an abstract socket name.
    std::memcpy(socket.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }

  sockaddr_un socket{};
  socklen_t length = 0;
};

void set_patience(const FileDescriptor& connection) {
  const timeval patience{host_patience.count(), 0};
  for (const int direction : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    if (setsockopt(connection.get(), SOL_SOCKET, direction, &patience, sizeof patience) != 0) {
      throw_failed("setsockopt");
    }
  }
}

FileDescriptor new_socket() {
  FileDescriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!made.valid()) throw_failed("socket(AF_UNIX)");
  set_patience(made);
  return made;
}

template <typename F>
auto uninterrupted(F&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// A message header with room for a control message that carries `descriptors` descriptors.
struct Envelope {
  Envelope(std::byte* bytes, std::size_t size, std::size_t descriptors)
      : control((CMSG_SPACE(descriptors * sizeof(int)) + sizeof(cmsghdr) - 1) / sizeof(cmsghdr)) {
    part = {bytes, size};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptors > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    }
  }
  std::vector<cmsghdr> control;  // cmsghdr elements, for their alignment
  iovec part{};
  msghdr message{};
};

}  // namespace

FileDescriptor new_event() {
  FileDescriptor event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) throw_failed("eventfd");
  return event;
}

void signal_event(int event) noexcept {
  const std::uint64_t one = 1;
  // A write fails only when the counter is full, and then the owner wakes up anyway.
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof one);
}

void clear_event(int event) noexcept {
  std::uint64_t signals = 0;
  [[maybe_unused]] const ssize_t taken = read(event, &signals, sizeof signals);
}

int poll_until(std::span<pollfd> waiting, Clock::time_point until) {
  return uninterrupted([&] {
    if (until == Clock::time_point::max()) return poll(waiting.data(), waiting.size(), -1);
    const auto left = std::max(until - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec time{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
    return ppoll(waiting.data(), waiting.size(), &time, nullptr);
  });
}

JobToken draw_token() {
  JobToken token{};
  if (getrandom(token.data(), sizeof token, 0) != static_cast<ssize_t>(sizeof token)) {
    throw_failed("getrandom");
  }
  return token;
}

FileDescriptor listen_at(const JobToken& name) {
  FileDescriptor listener = new_socket();
  const Address address(name);
  if (bind(listener.get(), address.get(), address.length) != 0) throw_failed("bind");
  if (listen(listener.get(), SOMAXCONN) != 0) throw_failed("listen");
  return listener;
}

FileDescriptor connect_to(const JobToken& name, std::string_view what) {
  FileDescriptor connection = new_socket();
  const Address address(name);
  if (uninterrupted([&] { return connect(connection.get(), address.get(), address.length); }) != 0) {
    throw_failed(fmt::format("connect to {}", what));
  }
  return connection;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  FileDescriptor visitor(
      uninterrupted([&] { return accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC); }));
  if (!visitor.valid()) throw_failed("accept");
  set_patience(visitor);
  return visitor;
}

bool is_own_user(const FileDescriptor& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void send_descriptors(const FileDescriptor& connection, std::span<const std::byte> bytes,
                      std::span<const int> descriptors) {
  // sendmsg does not write to the buffer.
  Envelope envelope(const_cast<std::byte*>(bytes.data()), bytes.size(), descriptors.size());
  if (!descriptors.empty()) {
    cmsghdr* const header = CMSG_FIRSTHDR(&envelope.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent =
      uninterrupted([&] { return sendmsg(connection.get(), &envelope.message, MSG_NOSIGNAL); });
  if (sent != static_cast<ssize_t>(bytes.size())) throw_failed("sendmsg");
}

DescriptorMessage receive_descriptors(const FileDescriptor& connection, std::span<std::byte> room) {
  Envelope envelope(room.data(), room.size(), most_descriptors);
  const ssize_t received =
      uninterrupted([&] { return recvmsg(connection.get(), &envelope.message, MSG_CMSG_CLOEXEC); });
  if (received < 0 && errno == ECONNRESET) return {};
  if (received < 0) throw_failed("recvmsg");
  DescriptorMessage result;
  result.bytes = static_cast<std::size_t>(received);
  for (cmsghdr* header = CMSG_FIRSTHDR(&envelope.message); header != nullptr;
       header = CMSG_NXTHDR(&envelope.message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof descriptor, sizeof descriptor);
      result.descriptors.emplace_back(descriptor);
    }
  }
  if ((envelope.message.msg_flags & MSG_CTRUNC) != 0) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    fail_with(ErrorCode::transport,
              "this process cannot open the file descriptors that the host's ranks share: its "
              "limit is {} (ulimit -n)",
              limit.rlim_cur);
  }
  return result;
}

void await_readable(const FileDescriptor& socket, Clock::time_point until, std::string_view what) {
  pollfd waiting{socket.get(), POLLIN, 0};
  const int ready = poll_until(std::span(&waiting, 1), until);
  if (ready < 0) throw_failed("poll");
  if (ready == 0) {
    fail_with(ErrorCode::transport, "{} did not arrive within {} s", what, host_patience.count());
  }
}

}  // namespace ddl::collectives
