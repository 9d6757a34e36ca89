#pragma once

#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/device/exchange_body.hpp"
#include "ddl/data_type.hpp"

namespace ddl::collectives::device {

/// Calls f with the kernels' function object for the operation.
template <typename F>
void with_op(ReduceOp op, const F& f) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return f(Sum{});
    case ReduceOp::min:
      return f(Minimum{});
    case ReduceOp::max:
      return f(Maximum{});
    case ReduceOp::prod:
      return f(Product{});
  }
}

/// The view of shared memory and time for blocks on the host's processors.
class HostMemory {
 public:
  [[nodiscard]] static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }
  template <typename T>
  [[nodiscard]] static T load(const T& flag) {
    return __atomic_load_n(&flag, __ATOMIC_ACQUIRE);
  }
  static void store(std::uint64_t& flag, std::uint64_t value) {
    __atomic_store_n(&flag, value, __ATOMIC_RELEASE);
  }
  static void tell(std::uint64_t& flag, std::uint64_t value) {
    __atomic_store_n(&flag, value, __ATOMIC_RELAXED);
  }
};

/// A thread of a block, on the host's processors.
class HostBlock : public HostMemory {
 public:
  HostBlock(int index, int blocks, int thread, int threads, std::barrier<>& barrier)
      : index_(index), blocks_(blocks), thread_(thread), threads_(threads), barrier_(barrier) {}

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int blocks() const { return blocks_; }
  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int threads() const { return threads_; }
  void sync() { barrier_.arrive_and_wait(); }
  static void pause() { std::this_thread::yield(); }

 private:
  int index_, blocks_, thread_, threads_;
  std::barrier<>& barrier_;
};

/// Ranks that each run kernels in sequence, with all threads of a kernel concurrently.
class HostDevices {
 public:
  HostDevices(int ranks, int blocks, int threads) : ranks_(ranks), blocks_(blocks), threads_(threads) {
    for (int rank = 0; rank < ranks; ++rank) {
      mailboxes_.push_back(std::make_unique<Mailbox>());
      statuses_.push_back(std::make_unique<Status>());
    }
  }

  [[nodiscard]] Status& status(int rank) { return *statuses_[static_cast<std::size_t>(rank)]; }

  /// A rank's exchange, without buffers and range.
  [[nodiscard]] Exchange exchange(int rank, std::uint64_t call) const {
    Exchange e;
    for (int peer = 0; peer < ranks_; ++peer)
      e.mailboxes[peer] = mailboxes_[static_cast<std::size_t>(peer)].get();
    e.status = statuses_[static_cast<std::size_t>(rank)].get();
    e.rank = rank;
    e.ranks = ranks_;
    e.part_of = call;
    e.timeout_ns = 20'000'000'000;
    return e;
  }

  using Body = std::function<void(HostBlock&, const Exchange&, Meeting&)>;
  /// Runs the kernels of all ranks' streams; `kernels(rank)` returns those of a rank.
  void run(const std::function<std::vector<Exchange>(int)>& kernels, const Body& body) {
    std::vector<std::unique_ptr<std::barrier<>>> barriers;
    std::vector<std::unique_ptr<Meeting>> meetings;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto calls = std::make_shared<std::vector<Exchange>>(kernels(rank));
      auto& stream = *barriers.emplace_back(std::make_unique<std::barrier<>>(blocks_ * threads_));
      for (int index = 0; index < blocks_; ++index) {
        auto& barrier = *barriers.emplace_back(std::make_unique<std::barrier<>>(threads_));
        auto& meeting = *meetings.emplace_back(std::make_unique<Meeting>());
        for (int thread = 0; thread < threads_; ++thread) {
          threads.emplace_back([=, this, &stream, &barrier, &meeting] {
            HostBlock block(index, blocks_, thread, threads_, barrier);
            for (const Exchange& call : *calls) {
              body(block, call, meeting);
              stream.arrive_and_wait();
            }
          });
        }
      }
    }
  }

 private:
  int ranks_, blocks_, threads_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::vector<std::unique_ptr<Status>> statuses_;
};

}  // namespace ddl::collectives::device
