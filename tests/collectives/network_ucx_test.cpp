#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/system/interfaces.hpp"
#include "collectives/transports/network/ucx_network.hpp"
#include "support/environment_variable.hpp"
#include "support/thrown_error.hpp"

namespace ddl::collectives {
namespace {

using State = Transfer::State;
using Bytes = std::vector<std::byte>;

constexpr auto patience = std::chrono::seconds(30);

UcxSettings settings(int rank, int ranks) {
  const MachineInterfaces here = local_interfaces();
  return {rank, ranks, ranks, usable_interfaces({here}, 0)};
}

/// Ranks that are UCX workers in one process, driven by the test.
struct Job {
  explicit Job(int ranks) {
    std::vector<std::string> addresses;
    for (int r = 0; r < ranks; ++r) {
      networks.push_back(make_ucx_network(settings(r, ranks)));
      addresses.push_back(networks.back()->address());
    }
    for (const auto& network : networks) network->connect(addresses);
  }
  UcxNetwork& operator[](int rank) { return *networks[static_cast<std::size_t>(rank)]; }
  void leave(int rank) { networks[static_cast<std::size_t>(rank)].reset(); }
  /// Drives all ranks until the condition holds; returns false after a timeout.
  bool until(const std::function<bool()>& holds) {
    const auto end = Clock::now() + patience;
    while (!holds()) {
      if (Clock::now() > end) return false;
      for (const auto& network : networks) {
        if (network != nullptr) network->progress();
      }
    }
    return true;
  }
  std::vector<std::unique_ptr<UcxNetwork>> networks;
};

Bytes pattern(std::size_t bytes) {
  Bytes result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 7 + i / 251);
  return result;
}

// A rank would leave the library with data in this process that its peers wait for, or wait for nothing.
TEST(UcxNetwork, KnowsWhetherItHoldsDataBack) {
  Job job(2);
  const Bytes data = pattern(4096);
  struct Message {
    Transfer sent, received;
    Bytes memory = Bytes(4096);
  };
  std::deque<Message> messages;
  const auto tag_of = [](std::size_t i) { return MessageTag{0, 1, static_cast<std::uint32_t>(i)}; };
  const auto send = [&] {
    Message& message = messages.emplace_back();
    job[0].send(1, tag_of(messages.size() - 1), data, message.sent);
  };
  std::size_t received = 0;
  const auto receive_all = [&] {
    for (; received < messages.size(); ++received) {
      job[1].receive(0, tag_of(received), messages[received].memory, messages[received].received);
    }
    return job.until([&] {
      return std::ranges::all_of(messages,
                                 [](const Message& m) { return m.sent.over() && m.received.over(); });
    });
  };
  EXPECT_FALSE(job[0].may_hold_back());
  send();
  ASSERT_TRUE(receive_all());
  EXPECT_TRUE(job[0].may_hold_back());
  EXPECT_FALSE(job[0].holds_back());
  EXPECT_FALSE(job[0].may_hold_back());

  constexpr std::size_t most = 20'000;  // more than sockets have room for
  while (!job[0].holds_back() && messages.size() < most) send();
  EXPECT_LT(messages.size(), most);
  EXPECT_TRUE(job[0].may_hold_back());
  ASSERT_TRUE(receive_all());
  EXPECT_TRUE(job.until([&] { return !job[0].holds_back(); }));
  for (const Message& message : messages) EXPECT_EQ(message.memory, data);
}

// Ranks that disagree on a count would continue with half of a message.
TEST(UcxNetwork, FailsMessagesThatAreNotAsLongAsTheirReceives) {
  for (const std::size_t sent_bytes : {std::size_t{7}, std::size_t{9}, std::size_t{3'000'000}}) {
    for (const bool late : {false, true}) {
      Job job(2);
      const Bytes data = pattern(sent_bytes);
      Bytes memory(8);
      Transfer sent;
      Transfer received;
      Transfer mark;
      Transfer marked;
      std::byte byte{};
      if (!late) job[1].receive(0, {1, 2, 3}, memory, received);
      job[0].send(1, {1, 2, 3}, data, sent);
      job[0].send(1, {9, 9, 9}, {data.data(), 1}, mark);
      job[1].receive(0, {9, 9, 9}, {&byte, 1}, marked);
      ASSERT_TRUE(job.until([&] { return marked.over(); }));
      if (late) job[1].receive(0, {1, 2, 3}, memory, received);
      ASSERT_TRUE(job.until([&] { return received.over() && sent.over(); }));
      EXPECT_EQ(received.state, State::failed);
      const std::string why = job[1].failure();
      EXPECT_NE(why.find("rank 0 sent"), why.npos) << why;
      EXPECT_NE(why.find("message 3 of call 2 of communicator 1, 8 bytes"), why.npos) << why;
      EXPECT_NE(why.find("same counts"), why.npos) << why;
      EXPECT_LT(job[1].failed_peer(), 0);
    }
  }
}

// The first rank that leaves at the end of a job would look as if it had died.
TEST(UcxNetwork, TellsLeavingFromDying) {
  Job job(3);
  const Bytes data = pattern(100);
  Bytes memory(100);
  Transfer sent;
  Transfer received;
  job[1].receive(0, {0, 1, 0}, memory, received);
  job[0].send(1, {0, 1, 0}, data, sent);
  ASSERT_TRUE(job.until([&] { return received.over() && sent.over(); }));
  Bytes never(8);
  Transfer waiting;
  job[1].receive(0, {0, 2, 0}, never, waiting);
  job.leave(0);
  ASSERT_TRUE(job.until([&] { return waiting.over(); }));
  EXPECT_EQ(waiting.state, State::failed);
  EXPECT_LT(job[1].failed_peer(), 0);
  EXPECT_EQ(job[1].failure(),
            "rank 0 has left the job, but there is a message 0 of call 2 of communicator 0, 8 bytes from it: "
            "do all "
            "ranks make the same calls?");

  Transfer others;
  Transfer others_sent;
  job[1].receive(2, {0, 3, 0}, memory, others);
  job[2].send(1, {0, 3, 0}, data, others_sent);
  ASSERT_TRUE(job.until([&] { return others.over(); }));
  EXPECT_EQ(others.state, State::done);

  Transfer late;
  job[1].send(0, {0, 4, 0}, data, late);
  ASSERT_TRUE(job.until([&] { return late.over(); }));
  EXPECT_EQ(late.state, State::failed);
}

// The last messages of a job would be lost if their sender leaves before they are received.
TEST(UcxNetwork, DeliversWhatARankSentBeforeItLeft) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}}) {
    Job job(2);
    const Bytes data = pattern(bytes);
    std::vector<Transfer> sent(20);
    for (std::uint32_t m = 0; m < sent.size(); ++m) job[0].send(1, {0, 0, m}, data, sent[m]);
    ASSERT_TRUE(job.until([&] {
      for (const Transfer& transfer : sent) {
        if (!transfer.over()) return false;
      }
      return true;
    }));
    job.leave(0);
    for (std::uint32_t m = 0; m < sent.size(); ++m) {
      Bytes memory(bytes);
      Transfer received;
      job[1].receive(0, {0, 0, m}, memory, received);
      ASSERT_TRUE(job.until([&] { return received.over(); }));
      ASSERT_EQ(received.state, State::done) << job[1].failure();
      EXPECT_EQ(memory, data);
    }
  }
}

// The other ranks of a failed job would wait until their deadline.
TEST(UcxNetwork, AbandonedByARankIsAFailureToItsPeers) {
  Job job(3);
  Bytes memory(8);
  Bytes large(1 << 22);
  const Bytes data = pattern(1 << 22);
  Transfer small;
  Transfer half;
  Transfer own;
  Transfer sent;
  job[1].receive(0, {0, 0, 0}, memory, small);
  job[0].receive(1, {0, 0, 1}, large, own);
  job[1].send(0, {0, 0, 2}, data, sent);
  job[2].receive(0, {0, 0, 0}, memory, half);
  for (int i = 0; i < 100; ++i) job.until([] { return true; });
  job[0].abandon();
  EXPECT_EQ(own.state, State::active);
  ASSERT_TRUE(job.until([&] { return small.over() && sent.over() && half.over(); }));
  EXPECT_EQ(small.state, State::failed);
  EXPECT_EQ(sent.state, State::failed);
  EXPECT_EQ(job[1].failed_peer(), 0);
  EXPECT_EQ(job[2].failed_peer(), 0);
  EXPECT_NE(job[1].failure().find("the connection to rank 0 broke"), std::string::npos) << job[1].failure();
  EXPECT_EQ(job[0].event_descriptor(), -1);
  EXPECT_FALSE(job[0].arm());
  EXPECT_FALSE(job[0].progress());
  test::message_of(ErrorCode::transport, [&] { job[0].send(1, {}, memory, small); });
}

void write_all(int fd, const std::string& text) {
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string read_some(int fd) {
  std::string text(4096, '\0');
  const ssize_t length = read(fd, text.data(), text.size());
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return text;
}

/// Sends rank 0 a message and then waits to be killed.
[[noreturn]] void be_rank_1(int fd) {
  const std::unique_ptr<UcxNetwork> opened = make_ucx_network(settings(1, 2));
  UcxNetwork& network = *opened;
  const std::string other = read_some(fd);
  write_all(fd, network.address());
  network.connect({other, network.address()});
  const Bytes data = pattern(10);
  Transfer sent;
  network.send(0, {0, 0, 0}, data, sent);
  while (true) {
    network.progress();
    if (network.failed_peer() >= 0) _exit(1);
  }
}

/// Rank 0 of a job whose rank 1 is another process, from which a message has arrived.
struct Pair {
  Pair() : child(start()) {
    write_all(fds[0], network.address());
    network.connect({network.address(), read_some(fds[0])});
    Bytes memory(10);
    Transfer received;
    network.receive(1, {0, 0, 0}, memory, received);
    while (!received.over() && Clock::now() < end) network.progress();
    EXPECT_EQ(received.state, State::done);
  }
  ~Pair() {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const int fd : fds) close(fd);
  }

  [[nodiscard]] pid_t start() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const pid_t process = fork();
    if (process == 0) be_rank_1(fds[1]);
    return process;
  }

  int fds[2];
  pid_t child;
  std::unique_ptr<UcxNetwork> opened = make_ucx_network(settings(0, 2));  // after the fork
  UcxNetwork& network = *opened;
  Clock::time_point end = Clock::now() + patience;
};

// A killed rank would be noticed only after the deadline of ten minutes.
TEST(UcxNetwork, NoticesThatAPeerIsKilled) {
  for (const bool asleep : {false, true}) {
    Pair pair;
    UcxNetwork& network = pair.network;
    Transfer waiting;
    Bytes large(1 << 20);
    network.receive(1, {0, 0, 1}, large, waiting);
    if (asleep) {
      while (!network.arm()) network.progress();
    }
    kill(pair.child, SIGKILL);
    if (asleep) {
      pollfd readable{network.event_descriptor(), POLLIN, 0};
      ASSERT_EQ(poll(&readable, 1, std::chrono::milliseconds(patience).count()), 1);
    }
    while (network.failed_peer() < 0 && Clock::now() < pair.end) network.progress();
    EXPECT_EQ(network.failed_peer(), 1);
    EXPECT_EQ(waiting.state, State::failed);
    EXPECT_NE(network.failure().find("rank 1"), std::string::npos) << network.failure();
  }
}

/// Sets a socket option on this process's TCP connections.
template <typename T>
void set_on_connections(int option, const T& value) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.sin_family != AF_INET) continue;
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, option, &value, sizeof value), 0);
  }
}

// UCX 1.13 closes a connection with a message that it repeats until the kernel takes it: forever, here.
TEST(UcxNetwork, AbandonsPeersWhoseLinksAreCut) {
  const test::EnvironmentVariable over_tcp("UCX_TLS", "tcp");
  Pair pair;
  const Bytes data = pattern(4000);  // short of the size at which UCX asks the receiver first
  for (std::uint32_t m = 0; m < 2; ++m) {
    Transfer sent;
    pair.network.send(1, {0, 0, m + 1}, data, sent);
    while (!sent.over() && Clock::now() < pair.end) pair.network.progress();
    ASSERT_EQ(sent.state, State::done);
    sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    set_on_connections(SO_ATTACH_FILTER, sock_fprog{1, &drop});  // as if the cable were cut
  }
  set_on_connections(SO_SNDBUF, 1);  // what is not acknowledged fills it
  std::jthread watchdog([](const std::stop_token& over) {
    for (const auto until = Clock::now() + patience; Clock::now() < until && !over.stop_requested();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (over.stop_requested()) return;
    ADD_FAILURE() << "abandon waits for a link that is cut";
    std::quick_exit(1);
  });
  pair.network.abandon();
  EXPECT_EQ(pair.network.event_descriptor(), -1);
}

// A rank would not wake up although its message has arrived.
TEST(UcxNetwork, WakesAThreadThatSleeps) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1'000'000}}) {
    Job job(2);
    const Bytes data = pattern(bytes);
    std::atomic<int> armed = 0;
    constexpr int messages = 20;
    std::thread sender([&] {
      for (int m = 0; m < messages; ++m) {
        while (armed.load() <= m) std::this_thread::yield();
        Transfer sent;
        job[0].send(1, {0, 0, static_cast<std::uint32_t>(m)}, data, sent);
        while (!sent.over()) job[0].progress();
      }
    });
    for (int m = 0; m < messages; ++m) {
      Bytes memory(bytes);
      Transfer received;
      job[1].receive(0, {0, 0, static_cast<std::uint32_t>(m)}, memory, received);
      while (!received.over()) {
        if (job[1].progress() || !job[1].arm()) continue;
        armed = m + 1;
        pollfd readable{job[1].event_descriptor(), POLLIN, 0};
        if (poll(&readable, 1, std::chrono::milliseconds(patience).count()) != 1) {
          ADD_FAILURE() << "nothing woke the receiver of message " << m;
          std::quick_exit(1);
        }
      }
      EXPECT_EQ(memory, data);
    }
    sender.join();
  }
}

TEST(UcxNetwork, SaysOnceThatATransferIsOver) {
  Job job(2);
  Bytes data = pattern(8);
  Bytes memory(8);
  Transfer sent;
  Transfer received;
  job[1].receive(0, {}, memory, received);
  EXPECT_FALSE(job[1].progress());
  job[0].send(1, {}, data, sent);
  const auto end = Clock::now() + patience;
  while (!received.over() && Clock::now() < end) {
    job[0].progress();
    const bool said = job[1].progress();
    EXPECT_EQ(said, received.over());
  }
  EXPECT_EQ(received.state, State::done);
  EXPECT_FALSE(job[1].progress());
}

TEST(UcxNetwork, RefusesWhatItCannotName) {
  Job job(2);
  Bytes memory(8);
  Transfer transfer;
  for (const int peer : {-1, 2}) {
    test::message_of(ErrorCode::internal, [&] { job[0].receive(peer, {}, memory, transfer); });
  }
  EXPECT_NE(test::message_of(ErrorCode::unsupported,
                             [&] {
                               job[0].send(1, {16384, 0, 0}, memory, transfer);
                             })
                .find("8192 communicators"),
            std::string::npos);
  EXPECT_EQ(transfer.state, State::idle);
  test::message_of(ErrorCode::unsupported, [] { make_ucx_network({0, 300'000, 1, {}}); });
}

}  // namespace
}  // namespace ddl::collectives
