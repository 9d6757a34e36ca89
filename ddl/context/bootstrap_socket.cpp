#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/system/clock.hpp"
#include "collectives/system/descriptors.hpp"
#include "ddl/context/process_bootstrap.hpp"
#include "ddl/topology/as_index.hpp"
#include "topology/json_text.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl {
namespace {

using collectives::FileDescriptor;
using collectives::throw_failed;

constexpr int most_ranks = 1024;
constexpr std::uint64_t longest_message = std::uint64_t{1} << 30;
constexpr int nap_ms = 10;

/// The first message of a process. Rank 0 answers with the text of an error, which is empty if there is none.
struct Hello {
  std::uint64_t magic = 0x0132'746f'6f62'6c64;  // "dlboot2", version 1
  std::int32_t rank = 0;
  std::int32_t size = 0;
};

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return {};
  return value;
}

int number_of(const char* name, int least, int most) {
  const std::string text = variable(name).value_or("");
  const auto value = parse_whole<int>(text);
  if (value && *value >= least && *value <= most) return *value;
  fail_with(ErrorCode::invalid_argument,
            "{}: found '{}', expected a number from {} to {}. RANK and WORLD_SIZE say which of "
            "how many processes this is; unset both for a job of one",
            name, text, least, most);
}

/// A name that ranks started together share, and that is unlikely to be that of another job.
std::string socket_name(int size) {
  if (const auto name = variable("DDL_SOCKET")) return *name;
  const auto port = variable("MASTER_PORT");
  return fmt::format("@ddl-job-{}-{}-{}", geteuid(), port ? "port" + *port : std::to_string(getsid(0)), size);
}

/// The address and its length.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) {
    fail_with(ErrorCode::invalid_argument, "DDL_SOCKET: found a name of {} bytes, expected {} at most: '{}'",
              name.size(), sizeof address.sun_path - 1, name);
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.starts_with('@')) address.sun_path[0] = '\0';  // an abstract name, without a file
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())};
}

FileDescriptor new_socket() {
  FileDescriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) throw_failed("socket");
  return made;
}

void nap_until_ready(int descriptor, short events) {
  pollfd waiting{descriptor, events, 0};
  static_cast<void>(poll(&waiting, 1, nap_ms));
}

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// See join_by_socket.
class SocketBootstrap final : public ProcessBootstrap {
 public:
  explicit SocketBootstrap(std::chrono::milliseconds deadline) : ProcessBootstrap(deadline) {
    rank_ = socket_rank();
    size_ = number_of("WORLD_SIZE", 1, most_ranks);
    name_ = socket_name(size_);
    if (size_ == 1) return;
    rank_ == 0 ? invite() : join();
  }

  std::vector<std::string> all_gather(std::string_view bytes) override {
    ++exchanges_;
    std::vector<std::string> all(as_index(size_));
    if (bytes.size() > longest_message / static_cast<std::uint64_t>(size_)) {
      fail_with(ErrorCode::internal, "a start-up message of {} bytes is too long", bytes.size());
    }
    all[as_index(rank_)] = bytes;
    if (size_ == 1) return all;
    if (connections_.empty()) throw Error(ErrorCode::transport, "this job has been aborted");
    const TimePoint until = due();
    if (rank_ != 0) {
      send_message(connections_[0], 0, bytes, until);
      for (std::string& each : all) each = receive_message(connections_[0], 0, until);
      return all;
    }
    for (int peer = 1; peer < size_; ++peer) {
      const auto index = as_index(peer);
      all[index] = receive_message(connections_[index], peer, until);
    }
    for (int peer = 1; peer < size_; ++peer) {
      for (const std::string& each : all) send_message(connections_[as_index(peer)], peer, each, until);
    }
    return all;
  }

  /// Closes the connections. The other ranks notice by the watch, or by the end of their connection.
  void abort(int /*status*/) noexcept override { connections_.clear(); }

 private:
  void invite() {
    connections_.resize(as_index(size_));
    const auto [address, length] = address_of(name_);
    listener_.socket = new_socket();
    if (bind(listener_.socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      const int error = errno;
      fail_with(ErrorCode::transport, "rank 0 cannot take socket {}: {}.{}", name_, std::strerror(error),
                error == EADDRINUSE ? " Another job has it, or has left its file behind: give each job a "
                                      "DDL_SOCKET of its own"
                                    : "");
    }
    if (!name_.starts_with('@')) listener_.file = name_;
    if (listen(listener_.socket.get(), most_ranks) != 0) throw_failed("listen on " + name_);
    const TimePoint until = due();
    for (int peer = 1; peer < size_; ++peer) accept_one(until);
    if (!listener_.file.empty()) unlink(listener_.file.c_str());
    listener_.file.clear();
    listener_.socket = FileDescriptor();
  }

  /// Accepts connections until one more rank has joined.
  void accept_one(TimePoint until) {
    constexpr auto time_to_speak = std::chrono::seconds(1);  // ranks send their Hello at once
    constexpr int unknown = -1;
    for (;;) {
      FileDescriptor accepted(
          accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!accepted.valid()) {
        if (!would_wait()) throw_failed("accept on " + name_);
        std::string missing;
        for (int peer = 1; peer < size_; ++peer) {
          if (!connections_[as_index(peer)].valid()) missing += fmt::format(" {}", peer);
        }
        look(until, fmt::format("socket {}, which DDL_SOCKET names alike for all", name_),
             fmt::format("ranks{} have not come", missing));
        nap_until_ready(listener_.socket.get(), POLLIN);
        continue;
      }
      if (!is_own_user(accepted)) continue;
      Hello hello;
      try {
        transfer(accepted, unknown, POLLIN, &hello, sizeof hello, collectives::Clock::now() + time_to_speak);
      } catch (const Error&) {
        continue;
      }
      if (hello.magic != Hello().magic) continue;
      std::string problem;
      if (hello.size != size_) {
        problem = fmt::format("WORLD_SIZE is {} on rank 0 and {} on rank {}", size_, hello.size, hello.rank);
      } else if (hello.rank < 1 || hello.rank >= size_) {
        problem = fmt::format("a process says that it is rank {} of {}", hello.rank, size_);
      } else if (connections_[as_index(hello.rank)].valid()) {
        problem = fmt::format(
            "two processes say that they are rank {}: give each a RANK of its own, and each job a "
            "DDL_SOCKET of its own",
            hello.rank);
      }
      send_message(accepted, hello.rank, problem, until);
      if (!problem.empty()) throw Error(ErrorCode::mismatch, problem);
      connections_[as_index(hello.rank)] = std::move(accepted);
      return;
    }
  }

  void join() {
    const auto [address, length] = address_of(name_);
    const TimePoint until = due();
    FileDescriptor made = new_socket();
    while (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      const bool may_come = errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN;
      if (!may_come) throw_failed("connect to " + name_);
      look(until, fmt::format("socket {}, which DDL_SOCKET names alike for all", name_),
           "rank 0 has not come");
      std::this_thread::sleep_for(std::chrono::milliseconds(nap_ms));
      made = new_socket();
    }
    connections_.push_back(std::move(made));
    Hello hello;
    hello.rank = rank_;
    hello.size = size_;
    transfer(connections_[0], 0, POLLOUT, &hello, sizeof hello, until);
    const std::string problem = receive_message(connections_[0], 0, until);
    if (!problem.empty()) throw Error(ErrorCode::mismatch, topology::printable(problem));
  }

  // `peer`: the rank at the other end, for messages.
  using Connection = const collectives::FileDescriptor&;
  /// Sends `bytes` bytes if `direction` is POLLOUT, and receives as many if it is POLLIN.
  void transfer(Connection connection, int peer, short direction, void* data, std::size_t bytes,
                TimePoint until) {
    const bool sends = direction == POLLOUT;
    for (char* at = static_cast<char*>(data); bytes > 0;) {
      const ssize_t n =
          sends ? send(connection.get(), at, bytes, MSG_NOSIGNAL) : recv(connection.get(), at, bytes, 0);
      if (n > 0) {
        at += n;
        bytes -= static_cast<std::size_t>(n);
      } else if (n < 0 && would_wait()) {
        look(until, exchange(),
             fmt::format("rank {} has not {}", peer, sends ? "taken what it is sent" : "come"));
        nap_until_ready(connection.get(), direction);
      } else {
        const std::string problem = n < 0 ? fmt::format(" ({})", std::strerror(errno)) : "";
        throw_gone(fmt::format("rank {} is gone{}, as {} shows", peer, problem, exchange()));
      }
    }
  }

  void send_message(Connection connection, int peer, std::string_view bytes, TimePoint until) {
    std::uint64_t length = bytes.size();
    transfer(connection, peer, POLLOUT, &length, sizeof length, until);
    transfer(connection, peer, POLLOUT, const_cast<char*>(bytes.data()), bytes.size(), until);  // only read
  }

  std::string receive_message(Connection connection, int peer, TimePoint until) {
    std::uint64_t length = 0;
    transfer(connection, peer, POLLIN, &length, sizeof length, until);
    if (length > longest_message) {
      fail_with(ErrorCode::corrupt_data, "rank {} sends a start-up message of {} bytes", peer, length);
    }
    constexpr std::uint64_t piece = std::uint64_t{1} << 20;  // no memory for bytes that never come
    std::string bytes;
    while (bytes.size() < length) {
      const std::size_t before = bytes.size();
      bytes.resize(std::min(length, before + piece));
      transfer(connection, peer, POLLIN, bytes.data() + before, bytes.size() - before, until);
    }
    return bytes;
  }

  [[nodiscard]] std::string exchange() const {
    return fmt::format("exchange {} of start-up or end, by socket {}", exchanges_, name_);
  }

  std::string name_;
  struct Listener {
    ~Listener() {
      if (!file.empty()) unlink(file.c_str());
    }
    collectives::FileDescriptor socket;
    std::string file;  // the socket's file, removed at the end; empty: none
  } listener_;
  std::vector<collectives::FileDescriptor> connections_;  // on rank 0: by rank; on others: one, to rank 0
};

}  // namespace

bool is_socket_job() { return variable("WORLD_SIZE") && variable("RANK"); }

int socket_rank() { return number_of("RANK", 0, number_of("WORLD_SIZE", 1, most_ranks) - 1); }

std::unique_ptr<ProcessBootstrap> join_by_socket(std::chrono::milliseconds deadline) {
  return std::make_unique<SocketBootstrap>(deadline);
}

}  // namespace ddl
