// Sends messages between all processes of an MPI job through `ucx` or `mpi` and checks the received data:
//   network_program ucx|mpi PROCESSES
#include <fmt/format.h>
#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context/bootstrap_mpi.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/error.hpp"

namespace {

using ddl::collectives::Clock;
using ddl::collectives::MessageTag;
using ddl::collectives::Network;
using ddl::collectives::Transfer;
using Bytes = std::vector<std::byte>;

constexpr auto patience = std::chrono::seconds(60);

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// The content of message number `message` from `from` to `to`.
Bytes content(int from, int to, std::uint32_t message, std::size_t bytes) {
  Bytes result(bytes);
  std::uint32_t state = static_cast<std::uint32_t>(from * 1000 + to) * 2654435761U + message * 40503U + 1;
  for (std::byte& byte : result) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return result;
}

/// One rank's transfers and their memory.
class Messages {
 public:
  Messages(Network& network, int rank) : network_(network), rank_(rank) {}

  void send(int to, MessageTag tag, std::size_t bytes) {
    Message& message =
        messages_.emplace_back(Message{content(rank_, to, tag.message, bytes), {}, {}, -1, tag});
    network_.send(to, tag, message.bytes, message.transfer);
  }
  void receive(int from, MessageTag tag, std::size_t bytes) {
    Message& message = messages_.emplace_back(
        Message{Bytes(bytes), content(from, rank_, tag.message, bytes), {}, from, tag});
    network_.receive(from, tag, message.bytes, message.transfer);
  }
  /// Waits until all are complete. Sleeps while idle if the network can wake it up.
  void finish(const char* name) {
    const auto until = Clock::now() + patience;
    while (!over(name)) {
      expect(Clock::now() < until, fmt::format("{}: messages are missing after 60 s", name));
      if (network_.progress() || network_.event_descriptor() < 0 || over(name) || !network_.arm()) continue;
      pollfd readable{network_.event_descriptor(), POLLIN, 0};
      poll(&readable, 1, std::chrono::milliseconds(patience).count());
    }
    for (const Message& message : messages_) {
      expect(message.from < 0 || message.bytes == message.expected,
             fmt::format("{}: message {} from rank {} has wrong bytes", name, message.tag.message,
                         message.from));
    }
    messages_.clear();
  }

 private:
  struct Message {
    Bytes bytes;
    Bytes expected;
    Transfer transfer;
    int from;
    MessageTag tag;
  };
  bool over(const char* name) {
    for (const Message& message : messages_) {
      expect(message.transfer.state != Transfer::State::failed,
             fmt::format("{}: {}", name, network_.failure()));
      if (!message.transfer.over()) return false;
    }
    return true;
  }

  Network& network_;
  int rank_;
  std::deque<Message> messages_;
};

struct Job {
  ddl::MpiBootstrap& bootstrap;
  Network& network;
  int rank;
  int ranks;
  void barrier() { bootstrap.all_gather(""); }
};

// Messages of some size would arrive damaged or never. Covers all protocols (inline, eager, rendezvous).
void every_size_between_all_pairs(Job& job) {
  Messages messages(job.network, job.rank);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{8} << 10, std::size_t{1} << 20}) {
    for (int peer = 0; peer < job.ranks; ++peer) {
      if (peer == job.rank) continue;
      messages.receive(peer, {1, 7, 0}, bytes);
      messages.send(peer, {1, 7, 0}, bytes);
    }
    messages.finish("every size");
  }
  if (job.rank == 0) messages.receive(job.ranks - 1, {0, 0, 1}, std::size_t{64} << 20);
  if (job.rank == job.ranks - 1) messages.send(0, {0, 0, 1}, std::size_t{64} << 20);
  messages.finish("64 MiB");
}

// A late rank would lose messages, or receive the wrong ones.
void messages_before_their_receives(Job& job) {
  Messages messages(job.network, job.rank);
  const int next = (job.rank + 1) % job.ranks;
  const int previous = (job.rank + job.ranks - 1) % job.ranks;
  constexpr std::uint32_t count = 64;
  for (std::uint32_t m = 0; m < count; ++m) messages.send(next, {2, 3, m}, m * 1000);
  job.barrier();
  for (std::uint32_t m = count; m-- > 0;) messages.receive(previous, {2, 3, m}, m * 1000);
  messages.finish("unexpected");
}

// Concurrent calls of several communicators would get each other's data.
void tags_in_any_order(Job& job) {
  Messages messages(job.network, job.rank);
  const int next = (job.rank + 1) % job.ranks;
  const int previous = (job.rank + job.ranks - 1) % job.ranks;
  for (std::uint16_t communicator : {0, 1, 300}) {
    for (std::uint16_t call : {65535, 0, 63}) {
      messages.send(next, {communicator, call, communicator * 100U + call},
                    100U + communicator + call % 100U);
    }
  }
  for (std::uint16_t call : {63, 65535, 0}) {
    for (std::uint16_t communicator : {300, 0, 1}) {
      messages.receive(previous, {communicator, call, communicator * 100U + call},
                       100U + communicator + call % 100U);
    }
  }
  messages.finish("tags");
}

// A deep pipeline would stall when the buffers between ranks are full in both directions.
void many_in_both_directions(Job& job) {
  Messages messages(job.network, job.rank);
  for (std::uint32_t m = 0; m < 512; ++m) {
    for (int peer = 0; peer < job.ranks; ++peer) {
      if (peer != job.rank) messages.send(peer, {3, 1, m}, 20'000);
    }
  }
  for (std::uint32_t m = 0; m < 512; ++m) {
    for (int peer = 0; peer < job.ranks; ++peer) {
      if (peer != job.rank) messages.receive(peer, {3, 1, m}, 20'000);
    }
  }
  messages.finish("many");
  // A rank that has received everything may still hold data for others, and must not leave before they have
  // it.
  for (int peer = 0; peer < job.ranks; ++peer) {
    if (peer == job.rank) continue;
    messages.send(peer, {3, 1, 512}, 8);
    messages.receive(peer, {3, 1, 512}, 8);
  }
  messages.finish("the end of many");
}

// A rank would sleep forever although its message has arrived. Rank 0 sends when the others are about to
// sleep.
void a_late_sender_wakes_sleepers(Job& job) {
  Messages messages(job.network, job.rank);
  for (std::uint32_t m = 0; m < 20; ++m) {
    if (job.rank != 0) messages.receive(0, {4, 1, m}, m % 2 == 0 ? 8 : 200'000);
    job.barrier();
    if (job.rank == 0) {
      for (int peer = 1; peer < job.ranks; ++peer) messages.send(peer, {4, 1, m}, m % 2 == 0 ? 8 : 200'000);
    }
    messages.finish("late sender");
  }
}

// A failed job would hang at its end, or a late message would overwrite memory that is used otherwise by
// then.
void abandoned_receives_are_left_alone(Job& job) {
  Bytes memory(1 << 20);
  Transfer transfer;
  const int next = (job.rank + 1) % job.ranks;
  job.network.receive((job.rank + job.ranks - 1) % job.ranks, {5, 1, 0}, memory, transfer);
  Messages messages(job.network, job.rank);
  job.barrier();
  job.network.abandon();
  job.network.abandon();
  expect(!job.network.progress(), "an abandoned network ends transfers");
  expect(transfer.state == Transfer::State::active, "an abandoned transfer was changed");
  expect(memory == Bytes(memory.size()), "an abandoned receive was written to");
  try {
    messages.send(next, {5, 1, 0}, 8);
  } catch (const ddl::Error& error) {
    expect(error.code() == ddl::ErrorCode::transport, error.what());
    return;
  }
  throw std::runtime_error("an abandoned network accepts messages");
}

void run(std::string_view choice, int processes) {
  ddl::MpiBootstrap bootstrap(patience);
  expect(bootstrap.size() == processes, fmt::format("started with {} processes", bootstrap.size()));
  auto opened = ddl::open_network(bootstrap, choice == "ucx" ? ddl::NetworkUse::ucx : ddl::NetworkUse::mpi);
  expect(opened.network->name().starts_with(choice), "opened " + opened.network->name());
  expect(opened.reason.empty(), opened.reason);
  expect((opened.network->event_descriptor() >= 0) == (choice == "ucx"), "a descriptor to sleep on");
  expect(opened.network->any_thread() == (choice == "ucx"), "any_thread");
  Job job{bootstrap, *opened.network, bootstrap.rank(), bootstrap.size()};
  every_size_between_all_pairs(job);
  messages_before_their_receives(job);
  tags_in_any_order(job);
  many_in_both_directions(job);
  a_late_sender_wakes_sleepers(job);
  expect(job.network.failed_peer() < 0 && job.network.failure().empty(), job.network.failure());
  job.barrier();
  abandoned_receives_are_left_alone(job);
  if (job.rank == 0) fmt::print("network_program {} ok\n", job.network.name());
  opened.network.reset();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: network_program ucx|mpi PROCESSES");
    run(argv[1], std::atoi(argv[2]));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "network_program: {}\n", error.what());
    std::quick_exit(1);
  }
}
