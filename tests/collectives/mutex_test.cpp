// The mutex of small calls. Otherwise two threads could number or drive calls at the same time, or a thread
// could wait for ever.

#include "collectives/system/mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace ddl::collectives {
namespace {

TEST(Mutex, OneThreadAtATimeHoldsIt) {
  constexpr int threads = 4;
  constexpr int rounds = 20'000;
  Mutex mutex;
  int inside = 0;
  int count = 0;  // not atomic: a data race if two threads hold the mutex
  std::vector<std::jthread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        std::unique_lock hold(mutex, std::defer_lock);
        if (t % 2 == 0 || !hold.try_lock()) hold.lock();
        EXPECT_EQ(++inside, 1);
        ++count;
        --inside;
      }
    });
  }
  all.clear();
  EXPECT_EQ(count, threads * rounds);
}

TEST(Mutex, IsNotTakenFromItsHolder) {
  Mutex mutex;
  const std::lock_guard hold(mutex);
  std::jthread([&] { EXPECT_FALSE(mutex.try_lock()); });
}

TEST(Mutex, WakesThreadsThatSleep) {
  constexpr int threads = 3;
  Mutex mutex;
  std::atomic<int> through = 0;
  std::vector<std::jthread> sleepers;
  {
    const std::lock_guard hold(mutex);
    for (int t = 0; t < threads; ++t) {
      sleepers.emplace_back([&] {
        const std::lock_guard own(mutex);
        ++through;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that they sleep
    EXPECT_EQ(through, 0);
  }
  sleepers.clear();  // returns only if each was woken
  EXPECT_EQ(through, threads);
}

}  // namespace
}  // namespace ddl::collectives
