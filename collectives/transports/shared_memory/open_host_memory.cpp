#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <span>

#include "collectives/system/descriptors.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// What the lowest rank of a host tells the others: where it is, and by what they and the memory are known.
struct Offer {
  SocketName name;
  HostMemory::Token token;
};

/// What a visitor says; its eventfd comes along.
struct Greeting {
  HostMemory::Token token;
  std::int32_t member;
};

struct Visitor {
  FileDescriptor connection;
  int member = -1;  // not known yet
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Offer draw_offer() {
  Offer offer{};
  if (getrandom(&offer, sizeof offer, 0) != static_cast<ssize_t>(sizeof offer)) {
    throw Error(ErrorCode::transport, fmt::format("getrandom failed: {}", std::strerror(errno)));
  }
  return offer;
}

FileDescriptor new_event() {
  FileDescriptor event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) {
    throw Error(ErrorCode::transport, fmt::format("eventfd failed: {} (ulimit -n)", std::strerror(errno)));
  }
  return event;
}

/// The host's lowest rank: collects the others' eventfds, and gives everything to everybody.
class Reception {
 public:
  Reception(const Offer& offer, FileDescriptor listener, int members, FileDescriptor own_event)
      : offer_(offer), listener_(std::move(listener)), events_(static_cast<std::size_t>(members)) {
    events_.front() = std::move(own_event);
  }

  std::shared_ptr<HostMemory> run() {
    const auto until = SteadyClock::now() + host_patience;
    while (missing() > 0) meet_some(until);
    const int members = static_cast<int>(events_.size());
    FileDescriptor file;
    auto memory = HostMemory::create(members, 0, offer_.token, std::move(events_), file);
    std::vector<int> descriptors{file.get()};
    for (int member = 0; member < members; ++member) {
      descriptors.push_back(memory->event_descriptor(member));
    }
    for (const Visitor& visitor : visitors_) {
      if (visitor.member >= 0) hand_over(visitor.connection, descriptors, until);
    }
    return memory;
  }

 private:
  [[nodiscard]] std::ptrdiff_t missing() const {
    return std::count_if(events_.begin(), events_.end(), [](const auto& event) { return !event.valid(); });
  }

  /// Strangers may be among those who knock, and say nothing, so all are listened to at once.
  void meet_some(SteadyClock::time_point until) {
    std::vector<pollfd> waiting{{listener_.get(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) {
      waiting.push_back({visitor.member < 0 ? visitor.connection.get() : -1, POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
    const int ready = left > 0 ? poll(waiting.data(), waiting.size(), static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) return;
    if (ready <= 0) {
      throw Error(ErrorCode::transport, fmt::format("{} ranks of this host did not come within {} s",
                                                    missing(), host_patience.count()));
    }
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) listen_to(visitors_[i - 1]);
    }
    std::erase_if(visitors_, [](const Visitor& visitor) { return !visitor.connection.valid(); });
    if (waiting.front().revents != 0) {
      FileDescriptor connection = accept_from(listener_);
      if (is_own_user(connection)) visitors_.push_back({std::move(connection), -1});
    }
  }

  /// Closes the connection of one who is not expected.
  void listen_to(Visitor& visitor) {
    Greeting greeting{};
    DescriptorMessage message =
        receive_descriptors(visitor.connection, std::as_writable_bytes(std::span(&greeting, 1)));
    const bool expected = message.bytes == sizeof greeting && greeting.token == offer_.token &&
                          greeting.member > 0 && static_cast<std::size_t>(greeting.member) < events_.size() &&
                          message.descriptors.size() == 1 &&
                          !events_[static_cast<std::size_t>(greeting.member)].valid();
    if (!expected) {
      visitor.connection = FileDescriptor();
      return;
    }
    visitor.member = greeting.member;
    events_[static_cast<std::size_t>(greeting.member)] = std::move(message.descriptors.front());
  }

  /// One message at a time: the kernel limits what is on its way. A visitor who gives up says so itself.
  static void hand_over(const FileDescriptor& connection, std::span<const int> descriptors,
                        SteadyClock::time_point until) {
    try {
      while (!descriptors.empty()) {
        const auto some = descriptors.first(std::min(descriptors.size(), most_descriptors));
        std::byte byte{};
        send_descriptors(connection, bytes_of(byte), some);
        await_readable(connection, until, "a rank's answer");
        if (receive_descriptors(connection, std::span(&byte, 1)).bytes == 0) return;
        descriptors = descriptors.subspan(some.size());
      }
    } catch (const Error&) {
      // Its connection ends, and it reports that.
    }
  }

  const Offer& offer_;
  FileDescriptor listener_;
  std::vector<FileDescriptor> events_;
  std::vector<Visitor> visitors_;
};

/// One of the host's other ranks.
std::shared_ptr<HostMemory> take_over(const FileDescriptor& connection, const HostMemory::Token& token,
                                      int members, int member) {
  const auto until = SteadyClock::now() + host_patience;
  std::vector<FileDescriptor> descriptors;
  while (descriptors.size() < static_cast<std::size_t>(members) + 1) {
    await_readable(connection, until, "the shared memory");
    std::byte byte{};
    DescriptorMessage message = receive_descriptors(connection, std::span(&byte, 1));
    if (message.bytes == 0 || message.descriptors.empty()) {
      throw Error(ErrorCode::transport,
                  "the host's lowest rank closed the connection without handing over the memory");
    }
    std::move(message.descriptors.begin(), message.descriptors.end(), std::back_inserter(descriptors));
    send_descriptors(connection, bytes_of(byte), {});
  }
  const FileDescriptor file = std::move(descriptors.front());
  descriptors.erase(descriptors.begin());
  return HostMemory::open(members, member, token, std::move(descriptors), file);
}

/// One rank's part, phase by phase; the phases end with an exchange among all ranks, so nobody waits for a
/// peer that has given up.
class Opening {
 public:
  Opening(int members, int member) : members_(members), member_(member) {}

  /// The lowest rank offers memory; returns what the others must know, empty if there is nothing to offer.
  std::string offer() {
    if (members_ == 1 || member_ != 0) return {};
    attempt([&] {
      offer_ = draw_offer();
      event_ = new_event();
      socket_ = listen_at(offer_.name);
    });
    if (!reason_.empty()) return {};
    return {reinterpret_cast<const char*>(&offer_), sizeof offer_};
  }

  /// The others connect and send their eventfds; the kernel keeps them in line until the lowest rank accepts.
  void knock(const std::string& offered) {
    if (members_ == 1 || member_ == 0) return;
    attempt([&] {
      if (offered.size() != sizeof offer_) throw Error(ErrorCode::transport, "there is no memory");
      std::memcpy(&offer_, offered.data(), sizeof offer_);
      event_ = new_event();
      socket_ = connect_to(offer_.name, "the host's lowest rank");
      Greeting greeting{};
      greeting.token = offer_.token;
      greeting.member = member_;
      const int event = event_.get();
      send_descriptors(socket_, bytes_of(greeting), std::span(&event, 1));
      event_ = FileDescriptor();  // it comes back with the others
    });
  }

  /// The lowest rank hands over, the others map.
  void share() {
    if (members_ == 1) return;
    attempt([&] {
      memory_ = member_ == 0 ? Reception(offer_, std::move(socket_), members_, std::move(event_)).run()
                             : take_over(socket_, offer_.token, members_, member_);
    });
  }

  /// The others must not wait for this one.
  void give_up() { socket_ = FileDescriptor(); }

  [[nodiscard]] const std::string& reason() const { return reason_; }
  std::shared_ptr<HostMemory> take() { return std::move(memory_); }

 private:
  template <typename F>
  void attempt(F&& action) {
    try {
      action();
    } catch (const std::exception& error) {
      reason_ = error.what();
      give_up();
    }
  }

  int members_;
  int member_;
  Offer offer_{};
  FileDescriptor event_;
  FileDescriptor socket_;  // the lowest rank's: where it listens
  std::shared_ptr<HostMemory> memory_;
  std::string reason_;
};

/// Of the first member that has one.
std::string obstacle_among(const std::vector<int>& ranks, const std::vector<std::string>& reasons) {
  for (const int rank : ranks) {
    const std::string& reason = reasons[static_cast<std::size_t>(rank)];
    if (!reason.empty()) return fmt::format("rank {}: {}", rank, reason);
  }
  return {};
}

}  // namespace

HostMemories open_host_memory(Bootstrap& bootstrap, const topology::RankMap& map) {
  HostMemories result;
  result.obstacles.resize(static_cast<std::size_t>(map.hosts()));
  if (map.hosts() == map.ranks()) return result;

  const std::vector<int>& ranks = map.ranks_of(map.host_of(bootstrap.rank()));
  const int member = map.local_rank(bootstrap.rank());
  Opening opening(static_cast<int>(ranks.size()), member);

  const std::vector<std::string> offers = bootstrap.all_gather(opening.offer());
  opening.knock(offers[static_cast<std::size_t>(ranks.front())]);
  // All have to come, or there is nothing to hand over.
  if (obstacle_among(ranks, bootstrap.all_gather(opening.reason())).empty()) {
    opening.share();
  } else {
    opening.give_up();
  }
  const std::vector<std::string> reasons = bootstrap.all_gather(opening.reason());
  for (int host = 0; host < map.hosts(); ++host) {
    result.obstacles[static_cast<std::size_t>(host)] = obstacle_among(map.ranks_of(host), reasons);
  }
  if (result.obstacles[static_cast<std::size_t>(map.host_of(bootstrap.rank()))].empty() && ranks.size() > 1) {
    result.own = opening.take();
    result.member = member;
  }
  return result;
}

}  // namespace ddl::collectives
