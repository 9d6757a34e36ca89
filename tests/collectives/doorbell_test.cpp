// Sleeping ranks. Otherwise a rank would sometimes miss its wake-up and sleep until the deadline, or be woken
// up without need.

#include "collectives/memory/doorbell.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "collectives/system/descriptors.hpp"

namespace ddl::collectives {
namespace {

constexpr auto longest_sleep = std::chrono::seconds(10);

/// A bell and its sleeping owner.
class Sleeper {
 public:
  explicit Sleeper(bool by_descriptor)
      : by_descriptor_(by_descriptor), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void ring() {
    if (!bell_->ring()) return;
    const std::uint64_t one = 1;
    EXPECT_EQ(write(event_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  /// Sleeps once unless `missing()` is 0. Returns false if nobody rang for `longest_sleep`.
  template <typename F>
  bool sleep(F&& missing) {
    const std::uint32_t ticket = bell_->prepare(by_descriptor_);
    const int rings = missing();
    if (rings == 0 || bell_->expect(rings)) {
      bell_->cancel();
      return true;
    }
    const Clock::time_point end = Clock::now() + longest_sleep;
    if (by_descriptor_) {
      pollfd waiting{event_.get(), POLLIN, 0};
      poll(&waiting, 1, 10'000);
      bell_->cancel();
      std::uint64_t count = 0;
      while (read(event_.get(), &count, sizeof count) > 0) {
      }
    } else {
      bell_->sleep(ticket, end);
    }
    return Clock::now() < end;
  }
  /// Prepares for sleep and cancels, like an owner that finds what it needs or whose deadline passes.
  void doze() {
    bell_->prepare(by_descriptor_);
    if (!bell_->expect(2)) std::this_thread::yield();
    bell_->cancel();
  }

 private:
  const bool by_descriptor_;
  FileDescriptor event_;
  std::unique_ptr<Doorbell> bell_ = std::make_unique<Doorbell>();
};

class DoorbellBy : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, DoorbellBy, testing::Values(false, true),
                         [](const auto& by) { return by.param ? "Descriptor" : "Futex"; });

// The owner would miss the last of several rings. Two peers publish one item each per round, and the owner
// sleeps until it has both.
TEST_P(DoorbellBy, NobodySleepsThroughTheLastRingOfSeveral) {
  constexpr int rounds = 50'000;
  Sleeper sleeper(GetParam());
  std::array<std::atomic<int>, 2> published{};
  std::atomic<int> seen{0};
  std::atomic<bool> over{false};
  const auto publish = [&](std::size_t who) {
    unsigned delay = 1 + static_cast<unsigned>(who);
    for (int round = 1; round <= rounds && !over; ++round) {
      delay = delay * 1664525U + 1013904223U;
      // A random delay, so that rings find the owner in all its states.
      for (std::atomic<unsigned> spin = delay >> 23; spin > 0; --spin) {
      }
      published[who].store(round, std::memory_order_seq_cst);
      sleeper.ring();
      while (seen.load() < round && !over) std::this_thread::yield();
    }
  };
  std::thread one(publish, 0);
  std::thread other(publish, 1);
  bool awoke = true;
  for (int round = 1; round <= rounds && awoke; ++round) {
    const auto missing = [&] { return (published[0].load() < round) + (published[1].load() < round); };
    if (round % 3 == 0) sleeper.doze();
    while (awoke && missing() > 0) awoke = sleeper.sleep(missing);
    seen = round;
  }
  over = true;
  one.join();
  other.join();
  EXPECT_TRUE(awoke) << "slept through a ring";
}

// Rings for items that the owner does not wait for would hide the one that it does wait for.
TEST_P(DoorbellBy, RingsForOtherThingsHideNoneThatMatters) {
  constexpr int rounds = 20'000;
  Sleeper sleeper(GetParam());
  std::atomic<int> published{0};
  std::atomic<int> seen{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) sleeper.ring();
  });
  std::thread publisher([&] {
    for (int round = 1; round <= rounds && !over; ++round) {
      published.store(round, std::memory_order_seq_cst);
      sleeper.ring();
      while (seen.load() < round && !over) std::this_thread::yield();
    }
  });
  bool awoke = true;
  for (int round = 1; round <= rounds && awoke; ++round) {
    const auto missing = [&] { return published.load() < round ? 1 : 0; };
    while (awoke && missing() > 0) awoke = sleeper.sleep(missing);
    seen = round;
  }
  over = true;
  other.join();
  publisher.join();
  EXPECT_TRUE(awoke) << "slept through a ring";
}

/// Runs two threads through rounds in parallel, each with a short random delay, for about a second.
class Rounds {
 public:
  /// Calls `ring(round)` in another thread and `sleep(round)` in this one, until `sleep` returns false.
  template <typename Ring, typename Sleep>
  void run(Ring ring, Sleep sleep) {
    std::thread ringer([&] {
      unsigned draw = 1;
      for (int round = 1; started_ != over; ++round) {
        if (!await(started_, round)) break;
        delay(draw);
        ring(round);
        rung_ = round;
      }
    });
    const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
    unsigned draw = 2;
    for (int round = 1; round % 256 != 0 || Clock::now() < end; ++round) {
      started_ = round;
      delay(draw);
      const bool good = sleep(round);
      EXPECT_TRUE(good) << "slept through a ring in round " << round;
      if (!good) break;
      finish(round);
    }
    started_ = over;
    ringer.join();
  }
  /// Waits until `ring` has returned.
  void finish(int round) const { await(rung_, round); }

  static void delay(unsigned& draw) {
    draw = draw * 1664525U + 1013904223U;
    for (std::atomic<unsigned> spin = draw >> 27; spin > 0; --spin) {
    }
  }

 private:
  static constexpr int over = std::numeric_limits<int>::max();

  static bool await(const std::atomic<int>& value, int round) {
    for (int spins = 0; value.load() < round; ++spins) {
      if (spins > 5000) std::this_thread::yield();
    }
    return value.load() != over;
  }

  alignas(64) std::atomic<int> started_{0};
  alignas(64) std::atomic<int> rung_{0};
};

// An owner could neither see an item that is published while it falls asleep, nor be woken up for it.
TEST(Doorbell, ARingIsSeenOrCalls) {
  struct alignas(64) {
    Doorbell bell;
    alignas(64) std::atomic<int> published{0};
    alignas(64) std::atomic<int> called{0};
  } shared;
  Rounds rounds;
  rounds.run(
      [&](int round) {
        shared.published.store(round, std::memory_order_seq_cst);
        if (shared.bell.ring()) shared.called = round;
      },
      [&](int round) {
        shared.bell.prepare(true);
        const bool seen = shared.published.load(std::memory_order_seq_cst) == round || shared.bell.expect(1);
        rounds.finish(round);
        shared.bell.cancel();
        return seen || shared.called == round;
      });
}

// A late wake-up, for an item that the owner no longer waits for, would hide the next one.
TEST(Doorbell, ACallForAnEarlierSleepHidesNone) {
  struct alignas(64) {
    Doorbell bell;
    alignas(64) std::atomic<int> published{0};
  } shared;
  Rounds rounds;
  unsigned draw = 3;
  rounds.run(
      [&](int round) {
        for (const int number : {2 * round - 1, 2 * round}) {
          shared.published.store(number, std::memory_order_seq_cst);
          EXPECT_FALSE(shared.bell.ring()) << "a futex needs no eventfd";
          if (number < 2 * round) Rounds::delay(draw);
        }
      },
      [&](int round) {
        const auto missing = [&] { return 2 * round - shared.published.load(std::memory_order_seq_cst); };
        shared.bell.prepare(false);
        shared.bell.expect(1);
        shared.bell.cancel();
        const std::uint32_t ticket = shared.bell.prepare(false);
        if (const int rings = missing(); rings == 0 || shared.bell.expect(rings)) {
          shared.bell.cancel();
          return true;
        }
        const Clock::time_point end = Clock::now() + longest_sleep;
        shared.bell.sleep(ticket, end);
        return Clock::now() < end;
      });
}

// A rank that waits for several messages would be woken up once for each of them.
TEST(Doorbell, OnlyTheLastRingNeededWakes) {
  Doorbell bell;
  bell.prepare(true);
  EXPECT_FALSE(bell.ring()) << "the owner is still looking";
  EXPECT_FALSE(bell.expect(3));
  EXPECT_FALSE(bell.ring());
  EXPECT_TRUE(bell.ring());
  EXPECT_FALSE(bell.ring()) << "it is awake already";
}

// A rank would fall asleep after everything that it waits for has arrived.
TEST(Doorbell, RingsBetweenLookAndSleepCount) {
  Doorbell bell;
  bell.prepare(true);
  EXPECT_FALSE(bell.ring());
  EXPECT_FALSE(bell.ring());
  EXPECT_TRUE(bell.expect(2));
  bell.cancel();
  bell.prepare(true);
  EXPECT_FALSE(bell.expect(1)) << "rings of an earlier sleep count no more";
  bell.cancel();
}

// The death of a rank would be noticed only after everything else has arrived.
TEST(Doorbell, ALoudRingWakesWhateverIsNeeded) {
  Doorbell bell;
  EXPECT_FALSE(bell.ring_loudly()) << "nobody sleeps";
  bell.prepare(true);
  EXPECT_FALSE(bell.expect(5));
  EXPECT_TRUE(bell.ring_loudly());
  EXPECT_FALSE(bell.ring_loudly());
  EXPECT_FALSE(bell.ring());
}

// Every message to a running rank would cost a system call.
TEST(Doorbell, RingsAreNothingToAnOwnerAwake) {
  Doorbell bell;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(bell.ring());
  bell.prepare(true);
  bell.cancel();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(bell.ring());
}

// An owner that is rung while it prepares to sleep would sleep until its deadline, or forever.
TEST(Doorbell, AnOwnerThatWasRungOnTheWayToBedDoesNotSleep) {
  Doorbell bell;
  const std::uint32_t ticket = bell.prepare(false);
  EXPECT_FALSE(bell.expect(1));
  EXPECT_FALSE(bell.ring()) << "a futex needs no eventfd";
  bell.sleep(ticket, Clock::time_point::max());
  const std::uint32_t late = bell.prepare(false);
  EXPECT_FALSE(bell.expect(1));
  bell.sleep(late, Clock::now() - std::chrono::seconds(1));
  EXPECT_FALSE(bell.ring()) << "awake again";
}

}  // namespace
}  // namespace ddl::collectives
