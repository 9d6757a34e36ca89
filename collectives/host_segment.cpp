#include "collectives/host_segment.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr int patience_ms = 30'000;

[[noreturn]] void fail(const char* operation) {
  throw Error(ErrorCode::transport, fmt::format("{} failed: {}", operation, std::strerror(errno)));
}

RegionToken draw_token() {
  RegionToken token{};
  if (getrandom(token.data(), sizeof token, 0) != static_cast<ssize_t>(sizeof token)) fail("getrandom");
  return token;
}

struct Address {
  sockaddr_un socket{};
  socklen_t length = 0;
};

/// In the abstract namespace: the name starts with a zero byte and vanishes with the socket.
Address address_of(const RegionToken& token) {
  const std::string name = fmt::format("ddl-{:016x}{:016x}", token[0], token[1]);
  Address address;
  address.socket.sun_family = AF_UNIX;
  std::memcpy(address.socket.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

FileDescriptor new_socket() {
  FileDescriptor socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) fail("socket(AF_UNIX)");
  return socket_fd;
}

void await_readable(const FileDescriptor& socket_fd, const char* what) {
  pollfd waiting{socket_fd.get(), POLLIN, 0};
  int result = 0;
  do {
    result = poll(&waiting, 1, patience_ms);
  } while (result < 0 && errno == EINTR);
  if (result < 0) fail("poll");
  if (result == 0)
    throw Error(ErrorCode::transport, fmt::format("{} did not come within {} s", what, patience_ms / 1000));
}

/// Room for one file descriptor beside a message of one byte.
struct Envelope {
  Envelope() {
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  std::byte byte{};
  iovec vector{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
};

void send_file(const FileDescriptor& socket_fd, const FileDescriptor& file) {
  Envelope envelope;
  cmsghdr* header = CMSG_FIRSTHDR(&envelope.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = file.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket_fd.get(), &envelope.message, MSG_NOSIGNAL) != 1) fail("sendmsg");
}

FileDescriptor receive_file(const FileDescriptor& socket_fd) {
  await_readable(socket_fd, "the shared segment");
  Envelope envelope;
  const ssize_t received = recvmsg(socket_fd.get(), &envelope.message, MSG_CMSG_CLOEXEC);
  if (received < 0) fail("recvmsg");
  const cmsghdr* header = CMSG_FIRSTHDR(&envelope.message);
  if (received != 1 || header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error(ErrorCode::transport,
                "the host's lowest rank closed the connection without handing over the segment");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return FileDescriptor(fd);
}

bool is_own_user(const FileDescriptor& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

/// One rank's part, phase by phase; the phases end with an exchange among all ranks, so nobody waits
/// for a peer that has given up.
class Opening {
 public:
  Opening(const std::vector<int>& members, int rank)
      : members_(members), is_leader_(rank == members.front()), shares_(members.size() > 1) {}

  /// The leader offers a segment; returns its token for the others, empty if there is none to offer.
  std::string offer() {
    if (!shares_ || !is_leader_) return {};
    return attempt([&] {
      token_ = draw_token();
      region_ = std::make_shared<ChannelRegion>(ChannelRegion::create_file(size(), token_, file_));
      listener_ = new_socket();
      const Address address = address_of(token_);
      if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0) {
        fail("bind");
      }
      if (listen(listener_.get(), size()) != 0) fail("listen");
    })
               ? std::string(reinterpret_cast<const char*>(token_.data()), sizeof token_)
               : std::string();
  }

  /// The others connect; the kernel keeps them in line until the leader accepts.
  void knock(const std::string& offered) {
    if (!shares_ || is_leader_) return;
    attempt([&] {
      if (offered.size() != sizeof token_) throw Error(ErrorCode::transport, "there is no segment");
      std::memcpy(token_.data(), offered.data(), sizeof token_);
      connection_ = new_socket();
      const Address address = address_of(token_);
      if (connect(connection_.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) !=
          0) {
        fail("connect to the host's lowest rank");
      }
    });
  }

  /// The leader hands the segment to the `visitors` that have connected, who map it.
  void hand_over(int visitors) {
    if (!shares_ || !reason_.empty()) return;
    attempt([&] {
      if (!is_leader_) {
        region_ = std::make_shared<ChannelRegion>(
            ChannelRegion::open_file(size(), token_, receive_file(connection_)));
        return;
      }
      while (visitors > 0) {
        await_readable(listener_, "a rank of this host");
        const FileDescriptor visitor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!visitor.valid()) fail("accept");
        if (!is_own_user(visitor)) continue;
        send_file(visitor, file_);
        --visitors;
      }
    });
    // Ranks still in line see the end of the connection, with or without a segment.
    listener_ = FileDescriptor();
  }

  [[nodiscard]] const std::string& reason() const { return reason_; }
  std::shared_ptr<const ChannelRegion> take() { return std::move(region_); }

 private:
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }

  template <typename F>
  bool attempt(F&& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      reason_ = error.what();
      return false;
    }
  }

  const std::vector<int>& members_;
  bool is_leader_;
  bool shares_;
  RegionToken token_{};
  FileDescriptor file_;
  FileDescriptor listener_;
  FileDescriptor connection_;
  std::shared_ptr<const ChannelRegion> region_;
  std::string reason_;
};

}  // namespace

HostSegments open_host_segments(Bootstrap& bootstrap, const topology::RankMap& map) {
  HostSegments result;
  result.obstacles.resize(static_cast<std::size_t>(map.hosts()));
  if (map.hosts() == map.ranks()) return result;

  const std::vector<int>& members = map.ranks_of(map.host_of(bootstrap.rank()));
  Opening opening(members, bootstrap.rank());

  const std::vector<std::string> offers = bootstrap.all_gather(opening.offer());
  opening.knock(offers[static_cast<std::size_t>(members.front())]);

  const std::vector<std::string> after_knock = bootstrap.all_gather(opening.reason());
  const auto visitors = std::count_if(members.begin() + 1, members.end(), [&](int member) {
    return after_knock[static_cast<std::size_t>(member)].empty();
  });
  opening.hand_over(static_cast<int>(visitors));

  const std::vector<std::string> reasons = bootstrap.all_gather(opening.reason());
  for (int host = 0; host < map.hosts(); ++host) {
    std::string& obstacle = result.obstacles[static_cast<std::size_t>(host)];
    for (const int member : map.ranks_of(host)) {
      const std::string& reason = reasons[static_cast<std::size_t>(member)];
      if (obstacle.empty() && !reason.empty()) obstacle = fmt::format("rank {}: {}", member, reason);
    }
  }
  if (result.obstacles[static_cast<std::size_t>(map.host_of(bootstrap.rank()))].empty() &&
      members.size() > 1) {
    result.own = opening.take();
  }
  return result;
}

}  // namespace ddl::collectives
