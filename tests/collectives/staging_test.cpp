#include "collectives/executor/staging.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "collectives/executor/copy_pace.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t longest = std::size_t{64} << 10;
constexpr std::size_t cache = std::size_t{512} << 10;

std::shared_ptr<std::byte> allocated(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  void* const data = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  return {static_cast<std::byte*>(data), std::free};
}

class StagingTest : public testing::Test {
 protected:
  Staging staging_{longest, cache, allocated};
  std::array<std::byte, longest> from_{};

  Staging::Copy take(std::size_t bytes, std::uint32_t sends = 1, bool is_only_read = true,
                     bool beyond_limit = false) {
    return staging_.take(from_.data(), bytes, sends, is_only_read, beyond_limit);
  }
  static void read(const Staging::Copy& copy, std::uint32_t send = 0) { copy.flags[send].store(0); }
};

// A copy would be written into lines that its receiver's core still caches.
TEST_F(StagingTest, LinesAreUsedAgainOnlyOnceTheyHaveLeftTheCache) {
  for (const std::size_t bytes : {std::size_t{8} << 10, longest}) {
    std::set<std::byte*> places;
    std::size_t written = 0;
    for (;; written += bytes) {
      const Staging::Copy copy = take(bytes);
      ASSERT_NE(copy.data, nullptr);
      read(copy);
      if (!places.insert(copy.data).second) break;
    }
    EXPECT_GE(written, cache) << bytes;
  }
}

// Data that nobody has read would be overwritten.
TEST_F(StagingTest, CopiesStayUntilAllReceiversHaveReadThem) {
  std::vector<Staging::Copy> copies;
  for (int value = 1;; ++value) {
    const Staging::Copy copy = take(longest, 2);
    if (copy.data == nullptr) break;
    std::memset(copy.data, value, longest);
    copies.push_back(copy);
  }
  ASSERT_GT(copies.size(), 5u) << "a sender goes on for some messages";
  for (std::size_t i = 0; i < copies.size(); ++i) {
    for (const std::size_t at : {std::size_t{0}, longest - 1}) {
      EXPECT_EQ(copies[i].data[at], static_cast<std::byte>(i + 1));
    }
  }
  read(copies[1], 0);
  read(copies[1], 1);
  read(copies[0], 0);
  EXPECT_EQ(take(longest, 2).data, nullptr) << "the oldest copy has one more receiver";
  EXPECT_TRUE(staging_.has_unread());
  read(copies[0], 1);
  EXPECT_EQ(take(longest, 2).data, copies[0].data);
  for (const Staging::Copy& copy : copies) {
    read(copy, 0);
    read(copy, 1);
  }
  EXPECT_EQ(take(longest, 2).data, copies[1].data);
}

// Ranks that wait for each other's messages would never end.
TEST_F(StagingTest, ACopyMayGoBeyondTheLimit) {
  while (take(longest).data != nullptr) continue;
  Staging::Copy copy = take(longest, 1, true, true);
  ASSERT_NE(copy.data, nullptr);
  EXPECT_EQ(copy.flags, nullptr) << "its sender waits for an acknowledgement";
  std::byte* const place = copy.data;
  staging_.give_back(copy);
  EXPECT_EQ(copy.data, nullptr);
  EXPECT_EQ(take(longest, 1, false).data, place) << "memory that was used last is used next";
}

// `rep movsb` has a sixth of its rate where places in a page are almost the same.
TEST_F(StagingTest, CopiesAreHalfAPageFromTheData) {
  for (const bool is_only_read : {true, false}) {
    for (const std::size_t bytes : {std::size_t{5000}, longest}) {
      const Staging::Copy copy = take(bytes, 1, is_only_read);
      const auto apart =
          reinterpret_cast<std::uintptr_t>(copy.data) - reinterpret_cast<std::uintptr_t>(from_.data());
      EXPECT_LT(2048 - apart % 4096, 64u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.data) % 64, 0u);
    }
  }
}

class CopyPaceTest : public testing::Test {
 protected:
  CopyPace pace_;
  double tick_ = [] {
    const Ticks ticks;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return ticks.seconds_each();
  }();

  /// Of the next `copies`, how many go past the caches, if those through them take `cached` ns a byte, and
  /// those past them `past`.
  int streamed(int copies, double cached, double past = 0.03) {
    int streamed = 0;
    for (int i = 0; i < copies; ++i) {
      const bool streams = pace_.streams();
      streamed += streams ? 1 : 0;
      pace_.note(streams, 10'000, static_cast<std::uint64_t>(10'000e-9 * (streams ? past : cached) / tick_));
    }
    return streamed;
  }
};

// Members that share a cache would read from memory.
TEST_F(CopyPaceTest, CopiesGoThroughTheCachesWhereThatIsFast) {
  EXPECT_LT(streamed(10'000, 0.05), 100);
  EXPECT_LT(streamed(10'000, 0.1), 100) << "reading takes longer than it saves";
}

// Copies to a core far away would take five times as long.
TEST_F(CopyPaceTest, CopiesGoPastTheCachesWhereThatIsMuchFaster) {
  EXPECT_GT(streamed(100, 0.5), 80);
  EXPECT_GT(streamed(10'000, 0.5), 9'900) << "tries become rare";
  streamed(300, 0.05);
  EXPECT_LT(streamed(10'000, 0.05), 100) << "the member has come near";
}

// On a Zen 3, an all-gather of 1 MiB with a core far away took 240 us instead of 140.
TEST_F(CopyPaceTest, CopiesGoPastTheCachesWhereThatIsFasterEvenWithReadingFromMemory) {
  EXPECT_GT(streamed(10'000, 0.22, 0.1), 9'000);
  streamed(300, 0.04, 0.09);
  EXPECT_LT(streamed(10'000, 0.04, 0.09), 100) << "the member has come near";
}

// A rank that lost its core once would use the slower way from then on.
TEST_F(CopyPaceTest, OneSlowCopyChangesNothing) {
  streamed(1'000, 0.05);
  int after = 0;
  for (int i = 0; i < 100; ++i) {
    streamed(100, 0.05);
    streamed(1, 1'000);
    after += streamed(20, 0.05);
  }
  EXPECT_LT(after, 100);
}

// Two ranks would write into one block at a time, or a rank that has read a block would not write to it next,
// which is what the blocks are for.
TEST(TurnBlocks, WhoHasReadACopyWritesToItsBlockNext) {
  const std::shared_ptr<HostMemory> memory = HostMemory::in_process(3);
  const std::vector<std::byte> from(memory->turn_bytes());
  TurnBlocks mine(*memory, 0, 1);
  TurnBlocks peers(*memory, 1, 0);
  std::vector<Staging::Copy> sent;
  for (;;) {
    const Staging::Copy copy = mine.take(from.data(), from.size());
    if (copy.data == nullptr) break;
    sent.push_back(copy);
  }
  EXPECT_EQ(sent.size(), HostMemory::turn_blocks / 2);
  for (const Staging::Copy& copy : sent) peers.read(*copy.turn_block);
  EXPECT_EQ(peers.take(from.data(), from.size()).data, sent.back().data);
  EXPECT_EQ(mine.take(from.data(), from.size()).data, nullptr);
  for (std::size_t i = 1; i < HostMemory::turn_blocks; ++i) {
    EXPECT_NE(peers.take(from.data(), from.size()).data, nullptr) << i;
  }
  EXPECT_EQ(peers.take(from.data(), from.size()).data, nullptr);
}

// The copies of one pair of ranks would overwrite those of another, or of the same.
TEST(TurnBlocks, NoTwoShareMemory) {
  constexpr int members = 5;
  const std::shared_ptr<HostMemory> memory = HostMemory::in_process(members);
  const std::vector<std::byte> from(memory->turn_bytes() + 1);
  std::map<std::byte*, std::byte*> ends;
  for (int self = 0; self < members; ++self) {
    for (int peer = 0; peer < members; ++peer) {
      if (peer == self) continue;
      TurnBlocks blocks(*memory, self, peer);
      EXPECT_EQ(blocks.take(from.data(), from.size()).data, nullptr);
      for (std::size_t i = 0; i < HostMemory::turn_blocks / 2; ++i) {
        std::byte* const data = blocks.take(from.data() + 64 * i, from.size() - 1).data;
        ASSERT_NE(data, nullptr);
        std::memset(data, self, from.size() - 1);
        ends[data] = data + from.size() - 1;
      }
    }
  }
  EXPECT_EQ(ends.size(), static_cast<std::size_t>(members * (members - 1)) * HostMemory::turn_blocks / 2);
  std::byte* last = nullptr;
  for (const auto& [begin, end] : ends) {
    EXPECT_LE(last, begin);
    last = end;
  }
}

}  // namespace
}  // namespace ddl::collectives
