// The memory that the ranks of a host share, and its checks.

#include "collectives/transports/shared_memory/host_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "collectives/memory/heap.hpp"
#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr JobToken token{1, 2};

using Block = std::shared_ptr<std::byte>;

std::vector<FileDescriptor> new_events(int members) {
  std::vector<FileDescriptor> events;
  for (int i = 0; i < members; ++i) events.emplace_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return events;
}

struct Segment {
  explicit Segment(int members = 2)
      : memory(HostMemory::create(members, 0, token, new_events(members), file)) {}
  /// Opens the memory as another process would.
  [[nodiscard]] std::shared_ptr<HostMemory> open(int members, int index, JobToken its = token) const {
    return HostMemory::open(members, index, its, new_events(members), file);
  }
  [[nodiscard]] std::size_t used_bytes() const {
    struct stat status {};
    EXPECT_EQ(fstat(file.get(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
  FileDescriptor file;
  std::shared_ptr<HostMemory> memory;
};

bool is_zero(const void* data, std::size_t bytes) {
  const auto* start = static_cast<const std::byte*>(data);
  return std::all_of(start, start + bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

/// The exit status of a child process that runs `body`; 0 if that returned true.
int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    bool good = false;
    try {
      good = body();
    } catch (...) {
    }
    _exit(good ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// A peer would read other memory than was announced.
TEST(HostMemory, AnAddressMeansTheSameToAll) {
  const Segment segment;
  const auto other = segment.open(2, 1);
  const Block my_block = segment.memory->allocate(0, 1000);
  const Block their_block = other->allocate(1, 1000);
  ASSERT_TRUE(my_block && their_block);
  std::byte* const mine = my_block.get();
  std::byte* const theirs = their_block.get();
  mine[999] = std::byte{7};
  theirs[0] = std::byte{9};
  const auto mine_at = segment.memory->address_of(mine, 1000);
  const auto theirs_at = other->address_of(theirs, 1000);
  ASSERT_TRUE(mine_at && theirs_at);
  ASSERT_NE(other->at(*mine_at, 1000), nullptr);
  EXPECT_EQ(other->at(*mine_at, 1000)[999], std::byte{7});
  EXPECT_EQ(segment.memory->at(*theirs_at, 1000)[0], std::byte{9});
  EXPECT_EQ(segment.memory->at(*mine_at, 1000), mine);
}

// Plain memory would be taken for shared memory, and a peer would read an invalid address.
TEST(HostMemory, OnlyWhatIsWhollySharedHasAnAddress) {
  const Segment segment;
  const HostMemory& memory = *segment.memory;
  std::byte local{};
  EXPECT_FALSE(memory.address_of(&local, 1));
  EXPECT_FALSE(memory.address_of(nullptr, 1));
  EXPECT_FALSE(memory.address_of(nullptr, SIZE_MAX));
  const std::vector<std::byte> vector(100);
  EXPECT_FALSE(memory.address_of(vector.data(), vector.size()));

  const std::byte* const first = memory.at(0, 1);
  struct stat status {};
  ASSERT_EQ(fstat(segment.file.get(), &status), 0);
  const auto size = static_cast<std::size_t>(status.st_size);
  EXPECT_TRUE(memory.address_of(first, size));
  EXPECT_FALSE(memory.address_of(first, size + 1));
  EXPECT_FALSE(memory.address_of(first + 1, size));
  EXPECT_FALSE(memory.address_of(first + size - 1, 2));
  EXPECT_FALSE(memory.address_of(first - 1, 2));
  EXPECT_FALSE(memory.address_of(first + 1, SIZE_MAX));
  EXPECT_TRUE(memory.address_of(first + size - 1, 1));
}

// A broken or hostile peer could make this rank read or write its own private memory.
TEST(HostMemory, AddressesOutsideAreNothing) {
  const Segment segment;
  const HostMemory& memory = *segment.memory;
  struct stat status {};
  ASSERT_EQ(fstat(segment.file.get(), &status), 0);
  const auto size = static_cast<SharedAddress>(status.st_size);
  EXPECT_NE(memory.at(0, size), nullptr);
  EXPECT_NE(memory.at(size - 1, 1), nullptr);
  EXPECT_EQ(memory.at(size - 1, 2), nullptr);
  EXPECT_EQ(memory.at(size, 1), nullptr);
  EXPECT_EQ(memory.at(size + 1, 0), nullptr);
  EXPECT_EQ(memory.at(1, size), nullptr);
  EXPECT_EQ(memory.at(1, SIZE_MAX), nullptr) << "the end wraps around";
  EXPECT_EQ(memory.at(SIZE_MAX, 1), nullptr);
  EXPECT_EQ(memory.at(SIZE_MAX, SIZE_MAX), nullptr);
  EXPECT_EQ(memory.at(SIZE_MAX - 7, 16), nullptr);
  EXPECT_EQ(memory.at(std::uint64_t{1} << 63, std::uint64_t{1} << 63), nullptr);
}

// Between threads plain memory would be copied.
TEST(HostMemory, ThreadsShareEverything) {
  const auto memory = HostMemory::in_process(2);
  int local = 3;
  static int global = 4;
  const std::vector<int> heap(5, 6);
  for (const int* value : std::initializer_list<const int*>{&local, &global, heap.data()}) {
    const auto address = memory->address_of(value, sizeof *value);
    ASSERT_TRUE(address);
    EXPECT_EQ(memory->at(*address, sizeof *value), reinterpret_cast<const std::byte*>(value));
  }
}

class Allocation : public testing::TestWithParam<bool> {
 protected:
  Allocation() {
    if (GetParam()) memory_ = HostMemory::create(2, 1, token, new_events(2), file_);
  }
  FileDescriptor file_;
  std::shared_ptr<HostMemory> memory_ = HostMemory::in_process(2);
};
INSTANTIATE_TEST_SUITE_P(, Allocation, testing::Values(false, true),
                         [](const auto& shared) { return shared.param ? "Processes" : "Threads"; });

// Kernels would crash or be slow, blocks would overlap, and gradients would start with another tensor's
// values.
TEST_P(Allocation, BlocksAreAlignedZeroAndApart) {
  std::vector<std::pair<Block, std::size_t>> blocks;
  const auto add = [&](std::size_t bytes) {
    const Block held = memory_->allocate(1, bytes);
    std::byte* const block = held.get();
    ASSERT_NE(block, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (bytes >= mib ? 2 * mib : 64), 0U) << bytes;
    EXPECT_TRUE(is_zero(block, bytes)) << bytes;
    EXPECT_TRUE(memory_->address_of(block, bytes));
    std::memset(block, 0xff, bytes);
    blocks.emplace_back(held, bytes);
  };
  unsigned draw = 1;
  for (int round = 0; round < 400; ++round) {
    draw = draw * 1664525U + 1013904223U;
    if (blocks.size() > 20 || (!blocks.empty() && (draw >> 24) % 3 == 0)) {
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>((draw >> 8) % blocks.size()));
    } else {
      constexpr std::size_t sizes[] = {0, 1, 63, 64, 65, 4096, 100'000, mib - 1, mib, mib + 1, 3 * mib};
      add(sizes[(draw >> 16) % std::size(sizes)]);
    }
    auto sorted = blocks;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      const auto& [before, bytes] = sorted[i - 1];
      ASSERT_LE(before.get() + std::max<std::size_t>(bytes, 1), sorted[i].first.get());
    }
  }
  for (const auto& [block, bytes] : blocks) {
    EXPECT_TRUE(std::all_of(block.get(), block.get() + bytes, [](std::byte byte) {
      return byte == std::byte{0xff};
    })) << "another block's zeros";
  }
}

// An impossible request would end the process, or get less memory than requested.
TEST_P(Allocation, WhatIsNotThereIsNull) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2 + 1, SIZE_MAX / 2 - mib}) {
    EXPECT_EQ(memory_->allocate(1, bytes), nullptr) << bytes;
  }
  if (GetParam()) {
    EXPECT_EQ(memory_->allocate(1, memory_->heap_bytes() + 1), nullptr);
  }
  EXPECT_NE(memory_->allocate(1, 64), nullptr);
}

// Several threads allocate buckets, scratch memory and flags; they would get the same memory.
TEST_P(Allocation, ThreadsAllocateAtOnce) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned number = 1; number <= 4; ++number) {
    threads.emplace_back([&, number] {
      unsigned draw = number;
      const auto own = static_cast<std::byte>(number);
      std::vector<std::pair<Block, std::size_t>> blocks;
      for (int round = 0; round < 300; ++round) {
        draw = draw * 1664525U + 1013904223U;
        const std::size_t bytes = (draw >> 16) % 50 == 0 ? mib : 1 + (draw >> 16) % 5000;
        const Block block = memory_->allocate(1, bytes);
        if (!block || block.get()[0] != std::byte{} || block.get()[bytes - 1] != std::byte{}) ++wrong;
        if (!block) continue;
        block.get()[0] = own;
        block.get()[bytes - 1] = own;
        blocks.emplace_back(block, bytes);
        if (blocks.size() > 10) {
          const auto& [data, size] = blocks[draw % blocks.size()];
          if (data.get()[0] != own || data.get()[size - 1] != own) ++wrong;
          blocks.erase(blocks.begin() + draw % blocks.size());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A member could take memory of others, or the heap would fragment with use.
TEST(HostMemory, AHeapCanBeUsedUpAndIsWholeAfterwards) {
  const Segment segment;
  HostMemory& memory = *segment.memory;
  const std::size_t most = memory.heap_bytes();
  Block whole = memory.allocate(0, most);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(memory.allocate(0, 1), nullptr);
  const std::byte* const start = whole.get();
  whole.reset();

  const std::size_t piece = most / 16;
  std::vector<Block> blocks;
  while (const Block block = memory.allocate(0, piece)) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 16U);
  const auto other = segment.open(2, 1);
  EXPECT_NE(other->allocate(1, most), nullptr) << "each member has its own";
  for (const std::size_t i : {0, 2, 4, 6, 8, 10, 12, 14, 15, 13, 11, 9, 7, 5, 3, 1}) {
    blocks[i].reset();
  }
  EXPECT_EQ(memory.allocate(0, most).get(), start);
}

// A buffer would start with the values of earlier, smaller or larger ones.
TEST(HostMemory, AFullHeapGivesOutZerosAgainInAnySize) {
  const FileDescriptor file(memfd_create("heap", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 8 * mib), 0);
  const Mapping mapping = Mapping::of_file(file.get(), 8 * mib);
  ASSERT_NE(mapping.data(), nullptr);
  Heap heap(mapping.data(), mapping.bytes());
  for (const std::size_t bytes : {mib / 4, 2 * mib, mib / 2, 8 * mib, std::size_t{100'000}, mib}) {
    std::vector<void*> blocks;
    while (void* const block = heap.allocate(bytes)) {
      EXPECT_TRUE(is_zero(block, bytes)) << bytes;
      std::memset(block, 0xff, bytes);
      blocks.push_back(block);
    }
    const std::size_t pages = (bytes + Heap::page - 1) / Heap::page;
    EXPECT_GE(blocks.size(), bytes == mib ? 4U : 8 * mib / (pages * Heap::page) - 1) << bytes;
    for (void* const block : blocks) heap.release(block);
  }
}

// Buffers would be slower to read, because they do not begin at a page.
TEST(HostMemory, BlocksOfAPageAndMoreBeginWithOne) {
  const auto in_process = HostMemory::in_process(1);
  std::vector<Block> blocks;
  for (std::size_t bytes = 1; bytes < 2 * mib; bytes = bytes * 3 / 2 + 1) {
    blocks.push_back(in_process->allocate(0, bytes));
    const auto address = reinterpret_cast<std::uintptr_t>(blocks.back().get());
    EXPECT_EQ(address % Heap::alignment_of(bytes), 0U) << bytes;
  }

  const Segment segment;
  HostMemory& memory = *segment.memory;
  const auto is_aligned = [](const Block& block, std::size_t to) {
    return reinterpret_cast<std::uintptr_t>(block.get()) % to == 0;
  };
  std::vector<Block> small, pages;
  for (int i = 0; i < 20; ++i) {
    small.push_back(memory.allocate(0, 1 + static_cast<std::size_t>(i)));
    pages.push_back(memory.allocate(0, Heap::page + static_cast<std::size_t>(i)));
    EXPECT_TRUE(is_aligned(small.back(), Heap::small_alignment));
    EXPECT_TRUE(is_aligned(pages.back(), Heap::page));
  }
  EXPECT_LT(small.back().get() - small.front().get(), static_cast<std::ptrdiff_t>(Heap::page))
      << "small ones fill what lies between";
  small.clear();
  pages.clear();
  EXPECT_NE(memory.allocate(0, memory.heap_bytes()), nullptr);
}

// A trainer that frees its buckets would not return memory to the machine.
TEST(HostMemory, LargeBlocksGiveTheirPagesBack) {
  const Segment segment;
  HostMemory& memory = *segment.memory;
  const std::size_t before = segment.used_bytes();
  EXPECT_LT(before, mib) << "memory that nobody has touched";
  Block block = memory.allocate(0, 8 * mib);
  ASSERT_NE(block, nullptr);
  EXPECT_LT(segment.used_bytes(), before + mib) << "allocating takes up nothing yet";
  std::byte* const start = block.get();
  std::memset(start, 1, 8 * mib);
  EXPECT_GE(segment.used_bytes(), before + 8 * mib);
  block.reset();
  EXPECT_EQ(segment.used_bytes(), before);
  block = memory.allocate(0, 8 * mib);
  EXPECT_EQ(block.get(), start);
  EXPECT_TRUE(is_zero(start, 8 * mib));
}

// A peer process would see nothing or only half of a message, or not wake up.
TEST(HostMemory, ProcessesExchangeNotices) {
  constexpr int count = 2000;
  int event = -1;
  std::vector<FileDescriptor> events = new_events(2);
  event = events[1].get();
  FileDescriptor file;
  const auto sender = HostMemory::create(2, 0, token, std::move(events), file);
  const pid_t child = fork();
  if (child == 0) {
    // A separate mapping, like that of a process that was not forked.
    bool good = true;
    try {
      std::vector<FileDescriptor> own = new_events(1);
      own.emplace_back(dup(event));
      const auto memory = HostMemory::open(2, 1, token, std::move(own), file);
      NoticeSlot* const ring = memory->notices(0, 1);
      Doorbell& bell = memory->member(1).bell;
      for (std::uint64_t i = 0; i < count; ++i) {
        NoticeSlot& notice = ring[i % memory->notices_per_ring()];
        const auto here = [&] { return notice.stamp.load(std::memory_order_seq_cst) == i + 1; };
        while (!here()) {
          const std::uint32_t ticket = bell.prepare(false);
          if (here() || bell.expect(1)) {
            bell.cancel();
          } else {
            bell.sleep(ticket, Clock::now() + std::chrono::seconds(10));
          }
        }
        const std::byte* const parcel =
            memory->parcels(0, 1) + i % memory->notices_per_ring() * memory->parcel_bytes();
        good = good && notice.tag.message == i && notice.bytes == 2 && parcel[0] == std::byte(i) &&
               parcel[memory->parcel_bytes() - 1] == std::byte(i >> 8);
        memory->ring_state(0, 1).read.store(i + 1, std::memory_order_seq_cst);
        memory->ring(0);
      }
    } catch (...) {
      good = false;
    }
    _exit(good ? 0 : 1);
  }
  RingState& state = sender->ring_state(0, 1);
  Doorbell& bell = sender->member(0).bell;
  bool late = false;
  for (std::uint64_t i = 0; i < count && !late; ++i) {
    const auto full = [&] {
      return i - state.read.load(std::memory_order_seq_cst) == sender->notices_per_ring();
    };
    const auto until = Clock::now() + std::chrono::seconds(20);
    while (full() && !late) {
      const std::uint32_t ticket = bell.prepare(false);
      if (!full() || bell.expect(1)) {
        bell.cancel();
      } else {
        bell.sleep(ticket, until);
      }
      late = Clock::now() > until;
    }
    const std::size_t place = i % sender->notices_per_ring();
    NoticeSlot& notice = sender->notices(0, 1)[place];
    std::byte* const parcel = sender->parcels(0, 1) + place * sender->parcel_bytes();
    parcel[0] = std::byte(i);
    parcel[sender->parcel_bytes() - 1] = std::byte(i >> 8);
    notice.tag.message = static_cast<std::uint32_t>(i);
    notice.bytes = 2;
    notice.kind = Notice::Kind::parcel;
    notice.stamp.store(i + 1, std::memory_order_seq_cst);
    sender->ring(1);
  }
  EXPECT_FALSE(late);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A rank that also waits for the network would not wake up.
TEST(HostMemory, RingsReachAnOwnerThatPolls) {
  for (const bool between_processes : {false, true}) {
    FileDescriptor file;
    const auto memory =
        between_processes ? HostMemory::create(2, 0, token, new_events(2), file) : HostMemory::in_process(2);
    const int event = memory->event_descriptor(1);
    EXPECT_EQ(memory->event_descriptor(1), event);
    std::uint64_t count = 0;
    EXPECT_LT(read(event, &count, sizeof count), 0) << "it does not block";
    memory->ring(1);
    EXPECT_LT(read(event, &count, sizeof count), 0) << "nobody sleeps";
    memory->member(1).bell.prepare(true);
    EXPECT_FALSE(memory->member(1).bell.expect(1));
    memory->ring(1);
    EXPECT_EQ(read(event, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    memory->member(1).bell.prepare(true);
    EXPECT_FALSE(memory->member(1).bell.expect(9));
    memory->ring_loudly(1);
    EXPECT_EQ(read(event, &count, sizeof count), static_cast<ssize_t>(sizeof count));
  }
}

// Threads that concurrently request a member's eventfd would poll different ones.
TEST(HostMemory, ThreadsGetTheSameEventDescriptor) {
  constexpr int members = 8;
  const auto memory = HostMemory::in_process(members);
  std::vector<std::vector<int>> seen(4, std::vector<int>(members));
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      for (int i = 0; i < members; ++i) mine[static_cast<std::size_t>(i)] = memory->event_descriptor(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : seen) EXPECT_EQ(mine, seen.front());
  EXPECT_EQ(std::set<int>(seen.front().begin(), seen.front().end()).size(),
            static_cast<std::size_t>(members));
}

// The rings of different pairs would overlap each other or the heaps.
TEST(HostMemory, PartsDoNotOverlap) {
  for (const int members : {1, 2, 3, 16, 17, 40}) {
    FileDescriptor file;
    const auto memory = HostMemory::create(members, 0, token, new_events(members), file);
    const std::size_t places = memory->notices_per_ring();
    EXPECT_TRUE(std::has_single_bit(places));
    EXPECT_GE(places, members <= 16 ? 64U : 8U);
    EXPECT_GE(memory->parcel_bytes(), members <= 16 ? 4096U : 256U);
    std::vector<std::pair<SharedAddress, std::size_t>> parts;
    const auto add = [&](const void* data, std::size_t bytes) {
      const auto address = memory->address_of(data, bytes);
      ASSERT_TRUE(address);
      EXPECT_EQ(*address % 64, 0U);
      parts.emplace_back(*address, bytes);
    };
    for (int from = 0; from < members; ++from) {
      add(&memory->member(from), sizeof(MemberState));
      add(&memory->tape(from), sizeof(FlightTape));
      for (int to = 0; to < members; ++to) {
        add(&memory->ring_state(from, to), sizeof(RingState));
        add(memory->notices(from, to), places * sizeof(NoticeSlot));
        add(memory->parcels(from, to), places * memory->parcel_bytes());
      }
    }
    const Block heap = memory->allocate(0, memory->heap_bytes());
    add(heap.get(), memory->heap_bytes());
    std::sort(parts.begin(), parts.end());
    EXPECT_GE(parts.front().first, 32U) << "the header";
    for (std::size_t i = 1; i < parts.size(); ++i) {
      ASSERT_LE(parts[i - 1].first + parts[i - 1].second, parts[i].first)
          << members << " members, part " << i;
    }
  }
}

// 1024 ranks as threads would take gigabytes to start.
TEST(HostMemory, ManyThreadsTakeUpAddressSpaceOnly) {
  const auto resident = [] {
    std::size_t pages = 0;
    std::size_t total = 0;
    FILE* const file = fopen("/proc/self/statm", "r");
    EXPECT_EQ(fscanf(file, "%zu %zu", &total, &pages), 2);
    fclose(file);
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  };
  const std::size_t before = resident();
  const auto memory = HostMemory::in_process(1024);
  memory->ring(1023);
  memory->notices(1023, 1022)->stamp = 1;
  EXPECT_LT(resident(), before + 4 * mib);
  EXPECT_GE(memory->notices_per_ring(), 8U);
  EXPECT_GE(memory->parcel_bytes(), 256U);
}

// Another program's file would be mapped and trusted, or a short one would crash the job.
TEST(HostMemory, RefusesAFileThatIsNotTheMemoryExpected) {
  const Segment segment(2);
  EXPECT_NE(segment.open(2, 1), nullptr);
  const auto refusal = [&](int members, JobToken its) {
    return test::message_of(ErrorCode::transport, [&] { auto memory = segment.open(members, 1, its); });
  };
  EXPECT_NE(refusal(2, {1, 3}).find("its token is another"), std::string::npos);
  EXPECT_NE(refusal(3, token).find("for 2 ranks, expected 3"), std::string::npos);
  EXPECT_NE(ftruncate(segment.file.get(), 0), 0) << "a peer could shrink the file under the others";

  const auto open_as_memory = [&](const FileDescriptor& file) {
    return test::message_of(ErrorCode::transport,
                            [&] { HostMemory::open(2, 1, token, new_events(2), file); });
  };
  std::array<std::byte, 4096> start{};
  ASSERT_EQ(pread(segment.file.get(), start.data(), start.size(), 0), static_cast<ssize_t>(start.size()));
  // The right content, but in a file that can be truncated or has been.
  FileDescriptor copy(memfd_create("copy", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(write(copy.get(), start.data(), start.size()), static_cast<ssize_t>(start.size()));
  EXPECT_NE(open_as_memory(copy).find("whose size is fixed"), std::string::npos);
  ASSERT_EQ(fcntl(copy.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_NE(open_as_memory(copy).find("4096 bytes, which does not fit"), std::string::npos);
  FileDescriptor empty(memfd_create("empty", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_NE(open_as_memory(empty).find("0 bytes, expected the memory of 2 ranks"), std::string::npos);
  EXPECT_FALSE(open_as_memory(FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC))).empty());
  EXPECT_FALSE(open_as_memory(FileDescriptor()).empty());
}

rlimit limited_to(std::size_t bytes) { return {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)}; }

// A limit of the system would end the job although smaller heaps suffice.
TEST(HostMemory, HeapsAreSmallerWhereTheSystemAllowsLess) {
  const int status = in_child([] {
    const rlimit limit = limited_to(std::size_t{3} << 30);
    setrlimit(RLIMIT_FSIZE, &limit);
    const Segment segment(2);
    const auto other = segment.open(2, 1);
    return segment.memory->heap_bytes() >= std::size_t{1} << 30 &&
           segment.memory->heap_bytes() <= std::size_t{3} << 29 &&
           other->heap_bytes() == segment.memory->heap_bytes() &&
           other->allocate(1, other->heap_bytes()) != nullptr;
  });
  EXPECT_EQ(status, 0);
}

// The process would be killed by a signal instead of continuing without shared memory.
TEST(HostMemory, NoRoomIsAnError) {
  const int status = in_child([] {
    const rlimit limit = limited_to(mib);
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = test::message_of(ErrorCode::transport, [] { Segment(2); });
    return message.find("no memory for 2 ranks") != std::string::npos &&
           message.find("ulimit") != std::string::npos;
  });
  EXPECT_EQ(status, 0);
}

// No address space would be left for the trainer.
TEST(HostMemory, ALimitedAddressSpaceIsNotUsedUp) {
#ifdef DDL_SANITIZED
  GTEST_SKIP() << "a sanitizer needs all of the address space";
#endif
  const int status = in_child([] {
    const rlimit limit = limited_to(std::size_t{8} << 30);
    setrlimit(RLIMIT_AS, &limit);
    const Segment segment(2);
    const std::unique_ptr<std::byte[]> much(new std::byte[std::size_t{3} << 30]);
    return segment.memory->heap_bytes() >= std::size_t{1} << 30;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ddl::collectives
