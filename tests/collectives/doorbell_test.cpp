// Sleeping ranks. If this failed, a rank would now and then sleep through what it waits for, until the
// deadline.

#include "collectives/doorbell.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace ddl::collectives {
namespace {

// One peer rings for things that the sleeper does not wait for, another one for what it does.
TEST(Doorbell, RingsForOtherThingsHideNoneThatMatters) {
  constexpr int rounds = 50'000;
  constexpr auto longest_sleep = std::chrono::seconds(10);
  const auto bell = std::make_unique<Doorbell>();
  std::atomic<int> published{0};
  std::atomic<int> seen{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) bell->ring();
  });
  std::thread publisher([&] {
    for (int round = 1; round <= rounds && !over; ++round) {
      published.store(round, std::memory_order_seq_cst);
      bell->ring();
      while (seen.load() < round && !over) std::this_thread::yield();
    }
  });
  bool slept_through = false;
  for (int round = 1; round <= rounds && !slept_through; ++round) {
    while (published.load() < round) {
      const std::uint32_t ticket = bell->prepare();
      if (published.load(std::memory_order_seq_cst) >= round) {
        bell->cancel();
        break;
      }
      const Clock::time_point start = Clock::now();
      bell->sleep(ticket, start + longest_sleep);
      slept_through = Clock::now() >= start + longest_sleep;
      if (slept_through) break;
    }
    seen = round;
  }
  over = true;
  other.join();
  publisher.join();
  EXPECT_FALSE(slept_through);
}

}  // namespace
}  // namespace ddl::collectives
