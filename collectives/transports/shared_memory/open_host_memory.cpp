#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "collectives/system/bootstrap.hpp"
#include "collectives/system/descriptors.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

/// What the lowest rank of a host tells the others: the name of its socket, and the token of the job's
/// memory.
struct Offer {
  JobToken name;
  JobToken token;
};

/// A member's first message, which also carries its eventfd.
struct Greeting {
  JobToken token;
  std::int32_t member;
};

struct Visitor {
  FileDescriptor connection;
  int member = -1;  // -1 until it has sent its greeting
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// The lowest rank's side: collects the members' eventfds, creates the memory, and sends both to every
/// member.
class Reception {
 public:
  Reception(const Offer& offer, FileDescriptor listener, int members, FileDescriptor own_event)
      : offer_(offer), listener_(std::move(listener)), events_(as_index(members)) {
    events_.front() = std::move(own_event);
  }

  std::shared_ptr<HostMemory> run() {
    const auto until = Clock::now() + host_patience;
    while (missing() > 0) meet_some(until);
    const int members = static_cast<int>(events_.size());
    FileDescriptor file;
    auto memory = HostMemory::create(members, 0, offer_.token, std::move(events_), file);
    std::vector<int> descriptors{file.get()};
    for (int member = 0; member < members; ++member) descriptors.push_back(memory->event_descriptor(member));
    for (const Visitor& visitor : visitors_) {
      if (visitor.member >= 0) hand_over(visitor.connection, descriptors, until);
    }
    return memory;
  }

 private:
  [[nodiscard]] std::ptrdiff_t missing() const {
    return std::count_if(events_.begin(), events_.end(), [](const auto& event) { return !event.valid(); });
  }

  /// Listens to all visitors at once, because strangers may connect and stay silent.
  void meet_some(Clock::time_point until) {
    std::vector<pollfd> waiting{{listener_.get(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) {
      waiting.push_back({visitor.member < 0 ? visitor.connection.get() : -1, POLLIN, 0});
    }
    if (poll_until(waiting, until) <= 0) {
      fail_with(ErrorCode::transport, "{} ranks of this host did not connect within {} s", missing(),
                host_patience.count());
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

  /// Closes the connection unless the greeting is that of a missing member.
  void listen_to(Visitor& visitor) {
    Greeting greeting{};
    DescriptorMessage message =
        receive_descriptors(visitor.connection, std::as_writable_bytes(std::span(&greeting, 1)));
    const bool expected = message.bytes == sizeof greeting && greeting.token == offer_.token &&
                          greeting.member > 0 && as_index(greeting.member) < events_.size() &&
                          message.descriptors.size() == 1 && !events_[as_index(greeting.member)].valid();
    if (!expected) {
      visitor.connection = FileDescriptor();
      return;
    }
    visitor.member = greeting.member;
    events_[as_index(greeting.member)] = std::move(message.descriptors.front());
  }

  /// Sends one message at a time, because the kernel limits descriptors in flight. A visitor that fails
  /// reports it itself.
  static void hand_over(const FileDescriptor& connection, std::span<const int> descriptors,
                        Clock::time_point until) {
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
      // The connection ends, and the visitor reports that.
    }
  }

  const Offer& offer_;
  FileDescriptor listener_;
  std::vector<FileDescriptor> events_;
  std::vector<Visitor> visitors_;
};

/// The side of the host's other ranks.
std::shared_ptr<HostMemory> take_over(const FileDescriptor& connection, const JobToken& token, int members,
                                      int member) {
  const auto until = Clock::now() + host_patience;
  std::vector<FileDescriptor> descriptors;
  while (descriptors.size() < as_index(members) + 1) {
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

/// Sends this rank's eventfd to the lowest rank, which returns it with those of the other members.
FileDescriptor knock(const Offer& offer, int member) {
  const FileDescriptor event = new_event();
  FileDescriptor socket = connect_to(offer.name, "the host's lowest rank");
  Greeting greeting{};  // zeroed, because its padding is sent as well
  greeting.token = offer.token;
  greeting.member = member;
  const int descriptor = event.get();
  send_descriptors(socket, bytes_of(greeting), std::span(&descriptor, 1));
  return socket;
}

}  // namespace

HostMemories open_host_memory(Bootstrap& bootstrap, const topology::RankMap& map) {
  HostMemories result;
  result.obstacles.resize(as_index(map.hosts()));
  if (map.hosts() == map.ranks()) return result;

  const int host = map.host_of(bootstrap.rank());
  const std::vector<int>& ranks = map.ranks_of(host);
  const auto members = static_cast<int>(ranks.size());
  const int member = map.local_rank(bootstrap.rank());
  const bool is_lowest = members > 1 && member == 0;

  // Each phase ends with an exchange among all ranks, so that no rank waits for a peer that has failed.
  Offer offer{};
  FileDescriptor event;   // the lowest rank's
  FileDescriptor socket;  // the lowest rank's listener, or the connection to it
  std::string problem;
  const auto attempt = [&](const auto& phase) {
    problem = problem_of(phase);
    if (!problem.empty()) socket = FileDescriptor();
  };
  if (is_lowest) {
    attempt([&] {
      offer = {draw_token(), draw_token()};
      event = new_event();
      socket = listen_at(offer.name);
    });
  }
  std::string offered;
  if (is_lowest && problem.empty()) offered.assign(reinterpret_cast<const char*>(&offer), sizeof offer);
  offered = bootstrap.all_gather(offered)[as_index(ranks.front())];
  if (member > 0) {
    attempt([&] {
      if (offered.size() != sizeof offer) throw Error(ErrorCode::transport, "no memory was offered");
      std::memcpy(&offer, offered.data(), sizeof offer);
      socket = knock(offer, member);  // the kernel queues the connection until the lowest rank accepts it
    });
  }
  // The memory is handed over only if all members have come.
  if (!first_problem(bootstrap.all_gather(problem), ranks).empty()) {
    socket = FileDescriptor();
  } else if (members > 1) {
    attempt([&] {
      result.own = is_lowest ? Reception(offer, std::move(socket), members, std::move(event)).run()
                             : take_over(socket, offer.token, members, member);
    });
  }
  const std::vector<std::string> problems = bootstrap.all_gather(problem);
  for (int each = 0; each < map.hosts(); ++each) {
    result.obstacles[as_index(each)] = first_problem(problems, map.ranks_of(each));
  }
  if (!result.obstacles[as_index(host)].empty()) result.own.reset();
  if (result.own) result.member = member;
  return result;
}

}  // namespace ddl::collectives
