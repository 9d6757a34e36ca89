#include "collectives/watch/connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr int kind_of_socket = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

std::string problem_text(int error) {
  const bool has_none_left = error == EMFILE || error == ENFILE;
  return std::string(std::strerror(error)) + (has_none_left ? " (ulimit -n)" : "");
}

[[noreturn]] void fail(std::string_view operation) {
  throw Error(ErrorCode::transport, fmt::format("{} failed: {}", operation, problem_text(errno)));
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Nothing if the text is no address.
std::optional<SocketAddress> parse(const std::string& text, std::uint16_t port) {
  SocketAddress result;
  auto& v4 = reinterpret_cast<sockaddr_in&>(result.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(result.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    result.length = sizeof v4;
    return result;
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    result.length = sizeof v6;
    return result;
  }
  return std::nullopt;
}

/// IPv6 takes IPv4 as well, where there is any.
FileDescriptor bound_socket(bool loopback_only) {
  for (const char* any : {loopback_only ? "127.0.0.1" : "::", loopback_only ? "::1" : "0.0.0.0"}) {
    const SocketAddress address = *parse(any, 0);
    FileDescriptor made(socket(address.storage.ss_family, kind_of_socket, 0));
    if (!made.valid()) {
      if (errno == EAFNOSUPPORT) continue;
      fail("socket");
    }
    const int off = 0;
    if (address.storage.ss_family == AF_INET6) {
      setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(made.get(), address.get(), address.length) == 0) return made;
    if (errno != EADDRNOTAVAIL) fail("bind");
  }
  errno = EADDRNOTAVAIL;
  fail("bind");
}

}  // namespace

Listener::Listener(bool loopback_only) : socket(bound_socket(loopback_only)) {
  if (listen(socket.get(), SOMAXCONN) != 0) fail("listen");
  SocketAddress own;
  own.length = sizeof own.storage;
  if (getsockname(socket.get(), own.get(), &own.length) != 0) fail("getsockname");
  // The port is at the same place in both.
  port = ntohs(reinterpret_cast<const sockaddr_in&>(own.storage).sin_port);
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
      to_send_.clear();  // nobody is there; `receive` says so
    }
  }
}

void Connection::flush_for(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  for (flush(); has_more_to_send(); flush()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd writable{socket_.get(), POLLOUT, 0};
    poll(&writable, 1, static_cast<int>(left.count()));
  }
}

FileDescriptor connect_to_first(const std::vector<std::string>& addresses, std::uint16_t port,
                                std::chrono::steady_clock::time_point until) {
  std::vector<FileDescriptor> sockets;
  std::vector<std::string> names;
  std::string problems;
  const auto note = [&](const std::string& address, int error) {
    problems += fmt::format("{}{}: {}", problems.empty() ? "" : "; ", address, problem_text(error));
  };
  for (const std::string& text : addresses) {
    const std::optional<SocketAddress> address = parse(text, port);
    if (!address) continue;
    FileDescriptor made(socket(address->storage.ss_family, kind_of_socket, 0));
    if (!made.valid() ||
        (connect(made.get(), address->get(), address->length) != 0 && errno != EINPROGRESS)) {
      note(text, errno);
      continue;
    }
    sockets.push_back(std::move(made));
    names.push_back(text);
  }
  while (!sockets.empty()) {
    std::vector<pollfd> waiting;
    for (const FileDescriptor& each : sockets) waiting.push_back({each.get(), POLLOUT, 0});
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    const int ready = left > 0 ? poll(waiting.data(), waiting.size(), static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
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
  throw Error(ErrorCode::transport,
              fmt::format("port {} cannot be reached: {}", port, problems.empty() ? "no address" : problems));
}

}  // namespace ddl::collectives
