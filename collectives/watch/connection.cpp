#include "collectives/watch/connection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "topology/json_text.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

constexpr std::string_view magic = "DDLw";
constexpr std::uint16_t version = 2;
constexpr std::size_t kib = 1024;
/// The longest body of each `Frame::Kind`, by its value.
constexpr std::array<std::size_t, 7> longest_bodies = {0, kib, 0, 64 * kib, kib* kib, 64 * kib* kib, 0};

std::uint32_t number_at(std::string_view bytes, std::size_t offset, std::size_t width) {
  std::uint32_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[offset + i]);
  return value;
}

void append(std::string& bytes, std::uint32_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

/// Global, because pthread_atfork handlers take no argument.
struct Guarded {
  std::mutex mutex;
  std::set<int> descriptors;
};

Guarded& guarded() {
  static Guarded* const all = [] {
    auto* made = new Guarded;  // never destroyed, because children may be forked while the process exits
    pthread_atfork([] { guarded().mutex.lock(); }, [] { guarded().mutex.unlock(); },
                   [] {
                     for (const int descriptor : guarded().descriptors) close(descriptor);
                     guarded().descriptors.clear();
                     guarded().mutex.unlock();
                   });
    return made;
  }();
  return *all;
}

constexpr int kind_of_socket = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

using Address = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Null if the text is not a numeric address.
Address parse(const std::string& text, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &freeaddrinfo};
}

/// An IPv6 socket also accepts IPv4; without IPv6, binds an IPv4 socket.
FileDescriptor bound_socket(bool loopback_only) {
  for (const char* any : {loopback_only ? "127.0.0.1" : "::", loopback_only ? "::1" : "0.0.0.0"}) {
    const Address address = parse(any, 0);
    FileDescriptor made(socket(address->ai_family, kind_of_socket, 0));
    if (!made.valid()) {
      if (errno == EAFNOSUPPORT) continue;
      throw_failed("socket");
    }
    const int off = 0;
    if (address->ai_family == AF_INET6) setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(made.get(), address->ai_addr, address->ai_addrlen) == 0) return made;
    if (errno != EADDRNOTAVAIL) throw_failed("bind");
  }
  errno = EADDRNOTAVAIL;
  throw_failed("bind");
}

}  // namespace

std::string encoded(const Frame& frame) {
  std::string bytes(magic);
  append(bytes, version, 2);
  append(bytes, static_cast<std::uint32_t>(frame.kind), 2);
  append(bytes, static_cast<std::uint32_t>(frame.body.size()), 4);
  return bytes + frame.body;
}

std::optional<Frame> FrameReader::next(unsigned kinds) {
  const std::string_view start = std::string_view(bytes_).substr(0, magic.size());
  if (start != magic.substr(0, start.size())) {
    fail_with(ErrorCode::corrupt_data, "found {}, expected a message of this library",
              topology::in_quotes(bytes_));
  }
  if (bytes_.size() < header_bytes) return std::nullopt;
  if (const std::uint32_t found = number_at(bytes_, 4, 2); found != version) {
    fail_with(ErrorCode::corrupt_data,
              "found version {} of this library's messages, expected {}: do all ranks run the same "
              "version?",
              found, version);
  }
  const std::uint32_t kind = number_at(bytes_, 6, 2);
  if (kind >= longest_bodies.size() || (kinds & 1U << kind) == 0) {
    fail_with(ErrorCode::corrupt_data, "found an unexpected message ({})", kind);
  }
  const std::size_t length = number_at(bytes_, 8, 4);
  if (length > longest_bodies[kind]) {
    fail_with(ErrorCode::corrupt_data, "found a message of {} bytes, expected {} at most", length,
              longest_bodies[kind]);
  }
  if (bytes_.size() < header_bytes + length) return std::nullopt;
  Frame frame{static_cast<Frame::Kind>(kind), bytes_.substr(header_bytes, length)};
  bytes_.erase(0, header_bytes + length);
  return frame;
}

ForkGuard::ForkGuard(int descriptor) : descriptor_(descriptor) {
  Guarded& all = guarded();
  const std::lock_guard lock(all.mutex);
  all.descriptors.insert(descriptor);
}

ForkGuard::ForkGuard(ForkGuard&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ForkGuard& ForkGuard::operator=(ForkGuard&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

ForkGuard::~ForkGuard() {
  if (descriptor_ < 0) return;
  Guarded& all = guarded();
  const std::lock_guard lock(all.mutex);
  all.descriptors.erase(descriptor_);
}

Listener::Listener(bool loopback_only) : socket(bound_socket(loopback_only)) {
  if (listen(socket.get(), SOMAXCONN) != 0) throw_failed("listen");
  sockaddr_in6 own{};
  socklen_t length = sizeof own;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) throw_failed("getsockname");
  port = ntohs(own.sin6_port);  // same offset as sockaddr_in::sin_port
}

Connection::Connection(FileDescriptor socket) : socket_(std::move(socket)), guard_(socket_.get()) {
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

bool Connection::receive() {
  std::array<char, 16384> room;
  for (;;) {
    const ssize_t received = recv(socket_.get(), room.data(), room.size(), 0);
    if (received > 0) {
      reader_.put({room.data(), static_cast<std::size_t>(received)});
      if (static_cast<std::size_t>(received) < room.size()) return true;
      continue;
    }
    if (received < 0 && errno == EINTR) continue;
    return received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

void Connection::send(const Frame& frame) {
  to_send_ += encoded(frame);
  flush();
}

void Connection::flush() {
  while (!to_send_.empty()) {
    const ssize_t sent = ::send(socket_.get(), to_send_.data(), to_send_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      to_send_.erase(0, static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      to_send_.clear();  // the connection is broken; `receive` reports that
    }
  }
}

void Connection::flush_for(std::chrono::milliseconds time) {
  const auto until = Clock::now() + time;
  for (flush(); has_more_to_send(); flush()) {
    pollfd writable{socket_.get(), POLLOUT, 0};
    if (poll_until(std::span(&writable, 1), until) <= 0) return;
  }
}

FileDescriptor connect_to_first(const std::vector<std::string>& addresses, std::uint16_t port,
                                Clock::time_point until) {
  std::vector<FileDescriptor> sockets;
  std::vector<std::string> names;
  std::string problems;
  const auto note = [&](const std::string& address, int error) {
    problems += fmt::format("{}{}: {}", problems.empty() ? "" : "; ", address, error_text(error));
  };
  for (const std::string& text : addresses) {
    const Address address = parse(text, port);
    if (!address) continue;
    FileDescriptor made(socket(address->ai_family, kind_of_socket, 0));
    if (!made.valid() ||
        (connect(made.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      note(text, errno);
      continue;
    }
    sockets.push_back(std::move(made));
    names.push_back(text);
  }
  while (!sockets.empty()) {
    std::vector<pollfd> waiting;
    for (const FileDescriptor& each : sockets) waiting.push_back({each.get(), POLLOUT, 0});
    if (poll_until(waiting, until) <= 0) {
      for (const std::string& name : names) note(name, ETIMEDOUT);
      break;
    }
    for (std::size_t i = waiting.size(); i-- > 0;) {
      if (waiting[i].revents == 0) continue;
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(sockets[i].get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) return std::move(sockets[i]);
      note(names[i], error);
      sockets.erase(sockets.begin() + static_cast<std::ptrdiff_t>(i));
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  fail_with(ErrorCode::transport, "port {} cannot be reached: {}", port,
            problems.empty() ? "no address" : problems);
}

}  // namespace ddl::collectives
