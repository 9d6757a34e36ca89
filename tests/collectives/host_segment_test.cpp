// Segments that processes share, and the checks on what a peer hands over.

#include "collectives/host_segment.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <thread>
#include <vector>

#include "collectives/shared_channels.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

/// Threads that meet as processes would.
struct Meeting {
  explicit Meeting(int ranks) : texts(static_cast<std::size_t>(ranks)), gate(ranks) {}
  std::vector<std::string> texts;
  std::barrier<> gate;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(meeting_.texts.size()); }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    meeting_.texts[static_cast<std::size_t>(rank_)] = bytes;
    meeting_.gate.arrive_and_wait();
    std::vector<std::string> result = meeting_.texts;
    meeting_.gate.arrive_and_wait();
    return result;
  }
  void abort(int) noexcept override {}

 private:
  Meeting& meeting_;
  int rank_;
};

// Ranks of a host would fall back to MPI, or share with the wrong ones.
TEST(HostSegment, RanksOfAHostShareMemoryAndOthersDoNot) {
  const topology::RankMap map({"a", "b", "a", "a", "c", "b"});
  Meeting meeting(map.ranks());
  std::vector<HostSegments> segments(static_cast<std::size_t>(map.ranks()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadBootstrap bootstrap(meeting, rank);
      segments[static_cast<std::size_t>(rank)] = open_host_segments(bootstrap, map);
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const HostSegments& result : segments) {
    EXPECT_EQ(result.obstacles, (std::vector<std::string>(3)));
  }
  EXPECT_EQ(segments[4].own, nullptr);
  const auto write_to = [&](int from, int to, std::byte value) {
    SharedChannels channels(segments[static_cast<std::size_t>(from)].own, map.ranks_of(map.host_of(from)),
                            from);
    EXPECT_EQ(channels.write_some(to, std::span(&value, 1)), 1U);
  };
  const auto read_from = [&](int from, int to) {
    SharedChannels channels(segments[static_cast<std::size_t>(to)].own, map.ranks_of(map.host_of(to)), to);
    const auto bytes = channels.readable(from);
    return bytes.empty() ? std::byte{0} : bytes[0];
  };
  write_to(0, 2, std::byte{2});
  write_to(0, 3, std::byte{3});
  write_to(5, 1, std::byte{51});
  EXPECT_EQ(read_from(0, 2), std::byte{2});
  EXPECT_EQ(read_from(0, 3), std::byte{3});
  EXPECT_EQ(read_from(5, 1), std::byte{51});
  EXPECT_EQ(read_from(3, 0), std::byte{0});
}

// A stranger's file would be mapped and trusted, or a short one would crash the job.
TEST(HostSegment, RefusesAFileThatIsNotTheSegmentExpected) {
  FileDescriptor file;
  const ChannelRegion region = ChannelRegion::create_file(2, {1, 2}, file);
  EXPECT_NO_THROW(ChannelRegion::open_file(2, {1, 2}, file));
  EXPECT_THROW(ChannelRegion::open_file(2, {1, 3}, file), Error);
  EXPECT_THROW(ChannelRegion::open_file(3, {1, 2}, file), Error);
  EXPECT_NE(ftruncate(file.get(), 0), 0) << "a peer could shrink the file under the others";
}

// 64 threads would need gigabytes.
TEST(HostSegment, ChannelsShrinkAsRanksGrow) {
  for (const std::size_t ranks : {2, 8, 32, 64, 256}) {
    const std::size_t capacity = ChannelRegion::capacity_for(static_cast<int>(ranks));
    EXPECT_LE(ranks * ranks * capacity, std::size_t{512} << 20);
    EXPECT_GE(capacity, 4096U);
    EXPECT_EQ(capacity & (capacity - 1), 0U);
  }
}

// Data would be lost or mixed where the ring of a channel wraps around.
TEST(SharedChannels, AStreamKeepsItsBytesInOrder) {
  const auto region = std::make_shared<const ChannelRegion>(ChannelRegion::in_process(2));
  SharedChannels writer(region, {0, 1}, 0);
  SharedChannels reader(region, {0, 1}, 1);
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  std::vector<std::byte> piece;
  for (std::size_t length = 1; read < 3'000'000; length = length * 7 % 200'003 + 1) {
    piece.resize(length);
    for (std::size_t i = 0; i < length; ++i)
      piece[i] = static_cast<std::byte>((written + i) * 2654435761U >> 24);
    written += static_cast<std::uint32_t>(writer.write_some(1, piece));
    const auto arrived = reader.readable(0);
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      ASSERT_EQ(arrived[i], static_cast<std::byte>((read + i) * 2654435761U >> 24)) << "byte " << read + i;
    }
    reader.consume(0, arrived.size());
    read += static_cast<std::uint32_t>(arrived.size());
  }
}

TEST(SharedChannels, AFullChannelTakesNothing) {
  const auto region = std::make_shared<const ChannelRegion>(ChannelRegion::in_process(2));
  SharedChannels writer(region, {0, 1}, 0);
  const std::vector<std::byte> bytes(region->capacity());
  std::size_t written = 0;
  while (const std::size_t more = writer.write_some(1, bytes)) written += more;
  EXPECT_EQ(written, region->capacity());
}

}  // namespace
}  // namespace ddl::collectives
