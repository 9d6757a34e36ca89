// How the ranks of a host agree to share memory, and what happens if they cannot. Threads stand in for
// processes.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/system/descriptors.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"

namespace ddl::collectives {
namespace {

struct Meeting {
  explicit Meeting(int ranks) : texts(static_cast<std::size_t>(ranks)), gate(ranks) {}
  std::vector<std::string> texts;
  std::barrier<> gate;
  /// Called on each rank before exchange number `exchange`; may change the `bytes` that it contributes.
  std::function<void(int rank, int exchange, std::string& bytes)> before = [](int, int, std::string&) {};
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(meeting_.texts.size()); }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    std::string& mine = meeting_.texts[static_cast<std::size_t>(rank_)];
    mine = bytes;
    meeting_.before(rank_, exchange_++, mine);
    meeting_.gate.arrive_and_wait();
    std::vector<std::string> result = meeting_.texts;
    meeting_.gate.arrive_and_wait();
    return result;
  }
  void abort(int) noexcept override {}

 private:
  Meeting& meeting_;
  int rank_;
  int exchange_ = 0;
};

std::vector<HostMemories> open_all(Meeting& meeting, const topology::RankMap& map) {
  std::vector<HostMemories> results(static_cast<std::size_t>(map.ranks()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadBootstrap bootstrap(meeting, rank);
      results[static_cast<std::size_t>(rank)] = open_host_memory(bootstrap, map);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}
std::vector<HostMemories> open_all(const topology::RankMap& map) {
  Meeting meeting(map.ranks());
  return open_all(meeting, map);
}

topology::RankMap one_host(int ranks) {
  return topology::RankMap(std::vector<std::string>(static_cast<std::size_t>(ranks), "a"));
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files))) - 1;  // not the directory's own
}

bool is_readable(int descriptor) {
  pollfd waiting{descriptor, POLLIN, 0};
  return poll(&waiting, 1, 0) == 1;
}

/// Expects that all ranks of a host have the memory or none does, and that all ranks report the same.
void expect_agreement(const std::vector<HostMemories>& results) {
  for (const HostMemories& result : results) {
    EXPECT_EQ(result.obstacles, results.front().obstacles);
    EXPECT_EQ(result.own != nullptr, result.obstacles.front().empty());
  }
}

// Ranks of a host would fall back to the network, or share memory with ranks of other hosts.
TEST(OpenHostMemory, RanksOfAHostShareMemoryAndOthersDoNot) {
  const topology::RankMap map({"a", "b", "a", "a", "c", "b"});
  const std::vector<HostMemories> results = open_all(map);
  std::vector<std::shared_ptr<std::byte>> blocks;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const HostMemories& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.obstacles, std::vector<std::string>(3));
    if (rank == 4) {
      EXPECT_EQ(result.own, nullptr);
      continue;
    }
    ASSERT_NE(result.own, nullptr);
    EXPECT_EQ(result.member, map.local_rank(rank));
    EXPECT_EQ(result.own->members(), static_cast<int>(map.ranks_of(map.host_of(rank)).size()));
    blocks.push_back(result.own->allocate(result.member, sizeof(int)));
    ASSERT_NE(blocks.back(), nullptr);
    auto* const block = reinterpret_cast<int*>(blocks.back().get());
    *block = 100 + rank;
    NoticeSlot& notice = *result.own->notices(result.member, 0);
    notice.address = *result.own->address_of(block, sizeof(int));
    notice.stamp = 1;
  }
  const auto told = [&](int rank, int member) {
    const HostMemory& memory = *results[static_cast<std::size_t>(rank)].own;
    const NoticeSlot& notice = *memory.notices(member, 0);
    EXPECT_EQ(notice.stamp, 1U);
    return *reinterpret_cast<const int*>(memory.at(notice.address, sizeof(int)));
  };
  for (const int rank : map.ranks_of(0)) {
    for (int member = 0; member < 3; ++member) {
      EXPECT_EQ(told(rank, member), 100 + map.ranks_of(0)[static_cast<std::size_t>(member)]);
    }
  }
  EXPECT_EQ(told(1, 1), 105);
  EXPECT_EQ(told(5, 0), 101);
}

// A rank that also waits for the network would not wake up, or another one would.
TEST(OpenHostMemory, EveryMemberHasEveryEventDescriptor) {
  constexpr int ranks = 5;
  const std::vector<HostMemories> results = open_all(one_host(ranks));
  const auto event = [&](int rank, int member) {
    return results[static_cast<std::size_t>(rank)].own->event_descriptor(member);
  };
  for (int sleeper = 0; sleeper < ranks; ++sleeper) {
    const HostMemory& own = *results[static_cast<std::size_t>(sleeper)].own;
    own.member(sleeper).bell.prepare(true);
    EXPECT_FALSE(own.member(sleeper).bell.expect(1));
    results[static_cast<std::size_t>((sleeper + 2) % ranks)].own->ring(sleeper);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int member = 0; member < ranks; ++member) {
        EXPECT_EQ(is_readable(event(rank, member)), member == sleeper) << rank << "'s view of " << member;
      }
    }
    std::uint64_t count = 0;
    EXPECT_EQ(read(event(sleeper, sleeper), &count, sizeof count), static_cast<ssize_t>(sizeof count));
    EXPECT_LT(read(event(sleeper, sleeper), &count, sizeof count), 0) << "it must not block";
  }
}

/// The name "ddl-..." of the socket on which the lowest rank listens; the rank's offer starts with it.
std::string socket_name(const std::string& offer) {
  std::uint64_t name[2];
  std::memcpy(name, offer.data(), sizeof name);
  return fmt::format("ddl-{:016x}{:016x}", name[0], name[1]);
}

// A service that runs trainers would lose file descriptors at each start.
TEST(OpenHostMemory, NothingIsLeftBehind) {
  const std::size_t before = open_files();
  Meeting meeting(4);
  std::string name;
  const auto is_bound = [&name] {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      if (line.find(name) != std::string::npos) return true;
    }
    return false;
  };
  bool was_bound = false;
  meeting.before = [&](int rank, int exchange, std::string& bytes) {
    if (rank != 0 || exchange != 0) return;
    name = socket_name(bytes);
    was_bound = is_bound();
  };
  {
    const std::vector<HostMemories> results = open_all(meeting, one_host(4));
    EXPECT_EQ(open_files(), before + 4 * 4) << "each rank keeps the eventfds, nothing else";
    EXPECT_TRUE(was_bound);
    EXPECT_FALSE(is_bound());
  }
  EXPECT_EQ(open_files(), before);
}

// A rank that is alone on its host would waste shared memory.
TEST(OpenHostMemory, RanksThatAreAloneShareNothing) {
  const std::vector<HostMemories> results = open_all(topology::RankMap({"a", "b"}));
  for (const HostMemories& result : results) {
    EXPECT_EQ(result.own, nullptr);
    EXPECT_EQ(result.obstacles, std::vector<std::string>(2));
  }
}

// Ranks would wait for one that failed, or one would use shared memory and another would not.
TEST(OpenHostMemory, ARankThatFailedKeepsItsHostFromSharingOnly) {
  const topology::RankMap map({"a", "a", "b", "b", "a"});
  Meeting meeting(map.ranks());
  meeting.before = [](int rank, int exchange, std::string& bytes) {
    if (rank == 4 && exchange == 1) bytes = "no luck";
  };
  const std::vector<HostMemories> results = open_all(meeting, map);
  for (int rank = 0; rank < map.ranks(); ++rank) {
    EXPECT_EQ(results[static_cast<std::size_t>(rank)].own != nullptr, map.host_of(rank) == 1);
  }
}

// The same, if the lowest rank has no offer or a wrong one.
TEST(OpenHostMemory, AnOfferThatLeadsNowhereIsAnObstacle) {
  for (const std::string offer : {"", "short", "................................"}) {
    Meeting meeting(3);
    meeting.before = [&](int rank, int exchange, std::string& bytes) {
      if (rank == 0 && exchange == 0) bytes = offer;
    };
    const std::vector<HostMemories> results = open_all(meeting, one_host(3));
    expect_agreement(results);
    EXPECT_EQ(results.front().obstacles.front().rfind("rank 1: ", 0), 0U)
        << results.front().obstacles.front();
  }
}

/// Another process that connects to the socket of the lowest rank.
class Stranger {
 public:
  explicit Stranger(const std::string& offer) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const std::string name = socket_name(offer);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  }
  void say(std::string_view text) {
    EXPECT_EQ(send(socket_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  /// Sends what a rank sends, except for the token.
  void pose_as(std::int32_t member) {
    std::array<std::byte, 24> greeting{};
    std::memcpy(greeting.data() + 16, &member, sizeof member);
    const int descriptor = socket_.get();
    send_descriptors(socket_, greeting, std::span(&descriptor, 1));
  }
  void leave() { socket_ = FileDescriptor(); }
  [[nodiscard]] bool was_given_something() const {
    char byte = 0;
    return recv(socket_.get(), &byte, 1, MSG_DONTWAIT) > 0;
  }

 private:
  FileDescriptor socket_;
};

// Another program of the same user that probes sockets would get the job's memory, or take a rank's place.
TEST(OpenHostMemory, StrangersGetNothingAndDelayNobody) {
  std::vector<Stranger> strangers;
  Meeting meeting(3);
  meeting.before = [&](int rank, int exchange, std::string& bytes) {
    if (rank != 0 || exchange != 0) return;
    for (int i = 0; i < 5; ++i) strangers.emplace_back(bytes);
    strangers[1].say("hello");
    strangers[2].pose_as(1);
    strangers[3].say(std::string(5000, 'x'));
    strangers[4].leave();
  };
  const std::vector<HostMemories> results = open_all(meeting, one_host(3));
  expect_agreement(results);
  EXPECT_NE(results.front().own, nullptr) << results.front().obstacles.front();
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(strangers[static_cast<std::size_t>(i)].was_given_something()) << i;
}

/// The exit status of a child process; 0 if `body` returned true there.
int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() && !testing::Test::HasFailure() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// The job would end although it could continue without shared memory.
TEST(OpenHostMemory, MemoryThatCannotBeMadeIsAnObstacle) {
  const int status = in_child([] {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::vector<HostMemories> results = open_all(one_host(3));
    expect_agreement(results);
    const std::string& obstacle = results.front().obstacles.front();
    EXPECT_EQ(obstacle.rfind("rank 0: shared memory: no memory for 3 ranks", 0), 0U) << obstacle;
    return true;
  });
  EXPECT_EQ(status, 0);
}

// With a limit on file descriptors, at whatever point it is reached, the job would hang.
TEST(OpenHostMemory, TooFewFileDescriptorsAreAnObstacle) {
  const int status = in_child([] {
    constexpr int ranks = 4;
    const std::size_t used = open_files();
    int refused = 0;
    for (std::size_t more = 1;; ++more) {
      const rlimit limit{used + more, 1000};
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
      const std::vector<HostMemories> results = open_all(one_host(ranks));
      expect_agreement(results);
      const std::string& obstacle = results.front().obstacles.front();
      if (obstacle.empty()) break;
      ++refused;
      EXPECT_NE(obstacle.find("ulimit -n"), std::string::npos) << obstacle;
    }
    EXPECT_GE(refused, ranks * ranks);
    return open_files() == used;
  });
  EXPECT_EQ(status, 0);
}

/// An all-gather of forked processes through memory that they share.
struct ForkedMeeting {
  static constexpr int ranks = 255;
  pthread_barrier_t gate;
  std::array<std::size_t, ranks> lengths;
  std::array<std::array<char, 240>, ranks> texts;
};

class ForkedBootstrap final : public Bootstrap {
 public:
  ForkedBootstrap(ForkedMeeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return ForkedMeeting::ranks; }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    const auto own = static_cast<std::size_t>(rank_);
    meeting_.lengths[own] = bytes.copy(meeting_.texts[own].data(), meeting_.texts[own].size());
    pthread_barrier_wait(&meeting_.gate);
    std::vector<std::string> result;
    for (std::size_t i = 0; i < meeting_.texts.size(); ++i) {
      result.emplace_back(meeting_.texts[i].data(), meeting_.lengths[i]);
    }
    pthread_barrier_wait(&meeting_.gate);
    return result;
  }
  void abort(int) noexcept override {}

 private:
  ForkedMeeting& meeting_;
  int rank_;
};

/// Sends a notice to the next rank and waits for that of the previous one.
bool pass_on(const HostMemories& host) {
  const int members = host.own->members();
  const int next = (host.member + 1) % members;
  NoticeSlot& notice = host.own->notices(host.member, next)[0];
  notice.tag.message = static_cast<std::uint32_t>(host.member);
  notice.stamp = 1;
  host.own->ring(next);
  const int previous = (host.member + members - 1) % members;
  const NoticeSlot& awaited = host.own->notices(previous, host.member)[0];
  Doorbell& bell = host.own->member(host.member).bell;
  while (awaited.stamp == 0) {
    bell.prepare(true);
    if (awaited.stamp == 0 && !bell.expect(1)) {
      pollfd waiting{host.own->event_descriptor(host.member), POLLIN, 0};
      poll(&waiting, 1, -1);
    }
    bell.cancel();
  }
  return awaited.tag.message == static_cast<std::uint32_t>(previous);
}

// Large hosts could not share memory: one message cannot carry the descriptors of so many ranks. These ranks
// are processes, as in a job.
TEST(OpenHostMemory, AsManyProcessesAsALargeHostHasShare) {
#ifdef DDL_SANITIZED
  GTEST_SKIP() << "a sanitizer's processes are too large";
#endif
  constexpr int ranks = ForkedMeeting::ranks;
  void* const place =
      mmap(nullptr, sizeof(ForkedMeeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  auto& meeting = *static_cast<ForkedMeeting*>(place);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  ASSERT_EQ(pthread_barrier_init(&meeting.gate, &shared, ranks), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // in case another process is lost
      ForkedBootstrap bootstrap(meeting, rank);
      const HostMemories host = open_host_memory(bootstrap, one_host(ranks));
      if (rank == 0 && !host.own) fprintf(stderr, "%s\n", host.obstacles.front().c_str());
      _exit(host.own && pass_on(host) ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  munmap(place, sizeof(ForkedMeeting));
}

}  // namespace
}  // namespace ddl::collectives
