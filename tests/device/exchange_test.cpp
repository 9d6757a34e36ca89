// The kernels of the exchange, run by threads of the host. Needs no device.

#include "collectives/device/exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "ddl/data_type.hpp"
#include "device/host_blocks.hpp"
#include "device/test_numbers.hpp"

namespace ddl::collectives::device {
namespace {

using topology::Collective;

constexpr int blocks = 2;
constexpr int threads = 4;

Address address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

struct Case {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 2;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::size_t misplaced = 0;  // bytes from an aligned address
  bool whole = false;         // whether every rank reduces everything
  bool extremes =
      false;  // whether values are zeros of both signs, infinities and the like, the same on all ranks
};

bool gathers(Collective collective) { return collective == Collective::all_gather; }
bool scatters(Collective collective) { return collective == Collective::reduce_scatter; }

std::vector<std::byte> extreme_bytes(DataType type, std::size_t count) {
  std::vector<std::byte> bytes(count * size_of(type));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<WideOf<T>>;
    const WideOf<T> numbers[] = {0,
                                 static_cast<WideOf<T>>(-0.0),
                                 1,
                                 Limits::max(),
                                 Limits::lowest(),
                                 Limits::infinity(),
                                 -Limits::infinity()};
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<T>(numbers[i % std::size(numbers)]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

/// Memory of a rank.
class Buffers {
 public:
  Buffers(const Case& c, int rank) : misplaced_(c.misplaced) {
    const auto ranks = static_cast<std::size_t>(c.ranks);
    const std::size_t in = c.count * (scatters(c.collective) ? ranks : 1);
    const std::size_t out = c.count * (gathers(c.collective) ? ranks : 1);
    const auto data = c.extremes ? extreme_bytes(c.type, in)
                                 : random_bytes(c.type, in, static_cast<std::uint32_t>(rank) + 1);
    const std::size_t piece = static_cast<std::size_t>(rank) * c.count * size_of(c.type);
    const std::size_t bytes = std::max(in, out) * size_of(c.type) + misplaced_;
    first_.resize(bytes + 64);
    second_.resize(bytes + 64, std::byte{0x5a});
    input_ = aligned(first_);
    output_ = c.in_place ? input_ : aligned(second_);
    if (c.in_place && gathers(c.collective)) input_ += piece;
    if (c.in_place && scatters(c.collective)) output_ += piece;
    if (!data.empty()) std::memcpy(input_, data.data(), data.size());
    original_ = data;
  }

  [[nodiscard]] std::byte* input() const { return input_; }
  [[nodiscard]] std::byte* output() const { return output_; }
  [[nodiscard]] const std::vector<std::byte>& original() const { return original_; }

 private:
  [[nodiscard]] std::byte* aligned(std::vector<std::byte>& memory) const {
    const auto place = reinterpret_cast<std::uintptr_t>(memory.data());
    return memory.data() + (64 - place % 64) % 64 + misplaced_;
  }

  std::size_t misplaced_;
  std::vector<std::byte> first_, second_, original_;
  std::byte* input_;
  std::byte* output_;
};

std::vector<std::byte> expected(const Case& c, const std::vector<Buffers>& all, int rank) {
  const std::size_t bytes = c.count * size_of(c.type);
  std::vector<std::byte> result(bytes * (gathers(c.collective) ? all.size() : 1));
  if (gathers(c.collective)) {
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (bytes > 0) std::memcpy(result.data() + r * bytes, all[r].original().data(), bytes);
    }
    return result;
  }
  if (c.collective == Collective::broadcast) return all[static_cast<std::size_t>(c.root)].original();
  std::vector<const std::byte*> inputs;
  const std::size_t at = scatters(c.collective) ? static_cast<std::size_t>(rank) * bytes : 0;
  for (const Buffers& buffers : all) inputs.push_back(buffers.original().data() + at);
  std::byte* const target = result.data();
  reduce(c.type, c.op, std::span(&target, 1), inputs, c.count, c.op == ReduceOp::avg ? c.ranks : 1);
  return result;
}

void run_case(const Case& c) {
  SCOPED_TRACE(testing::Message() << topology::to_string(c.collective) << ' ' << to_string(c.type) << ' '
                                  << to_string(c.op) << " ranks " << c.ranks << " count " << c.count
                                  << " root " << c.root << (c.in_place ? " in place" : "") << " misplaced "
                                  << c.misplaced << (c.whole ? " whole" : ""));
  HostDevices devices(c.ranks, blocks, threads);
  std::vector<Buffers> all;
  for (int rank = 0; rank < c.ranks; ++rank) all.emplace_back(c, rank);
  with_type(c.type, [&](auto zero) {
    with_op(c.op, [&](auto op) {
      using T = decltype(zero);
      using Op = decltype(op);
      devices.run(
          [&](int rank) {
            Exchange e = devices.exchange(rank, 1);
            e.call = CallCode{.count = c.count,
                              .collective = c.collective,
                              .type = c.type,
                              .op = c.op,
                              .root = static_cast<std::uint16_t>(c.root)};
            const std::size_t stride = c.count * sizeof(T);
            e.input = {address_of(all[static_cast<std::size_t>(rank)].input()), stride};
            e.output = {address_of(all[static_cast<std::size_t>(rank)].output()), stride};
            e.divisor = c.op == ReduceOp::avg ? c.ranks : 1;
            c.whole ? set_whole(e, c.count) : set_range(e, c.collective, c.count, sizeof(T), c.root);
            return std::vector<Exchange>{e};
          },
          [&](HostBlock& block, const Exchange& e, Meeting& meeting) {
            c.whole ? exchange_all<T, Op>(block, e, meeting) : exchange_ranges<T, Op>(block, e, meeting);
          });
    });
  });
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Buffers& own = all[static_cast<std::size_t>(rank)];
    const auto wanted = expected(c, all, rank);
    if (c.collective == Collective::reduce && rank != c.root) {
      if (!c.in_place) {
        for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(own.output()[i], std::byte{0x5a});
      }
      continue;
    }
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), own.output())) << "rank " << rank;
    for (int peer = 0; peer < c.ranks; ++peer) {
      EXPECT_EQ(devices.status(rank).late[peer], 0U);
      EXPECT_EQ(devices.status(rank).other[peer], 0U);
    }
  }
}

constexpr DataType types[] = {DataType::u8,  DataType::i32, DataType::i64, DataType::f32,
                              DataType::f64, DataType::f16, DataType::bf16};
constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod};
constexpr Collective collectives[] = {Collective::all_reduce, Collective::reduce, Collective::broadcast,
                                      Collective::reduce_scatter, Collective::all_gather};

TEST(Exchange, EveryTypeAndOperation) {
  for (const DataType type : types) {
    for (const ReduceOp op : ops) {
      run_case({.type = type, .op = op, .ranks = 3, .count = 1000});
      run_case({.type = type,
                .op = op,
                .ranks = 3,
                .count = 100 / size_of(type),
                .in_place = true,
                .whole = true});
    }
  }
}

TEST(Exchange, ExtremesAndSignsOfZerosAreAsTheHostHasThem) {
  for (const DataType type : types) {
    for (const ReduceOp op : ops) {
      for (const bool whole : {false, true}) {
        run_case({.type = type,
                  .op = op,
                  .ranks = 3,
                  .count = 100 / size_of(type),
                  .whole = whole,
                  .extremes = true});
      }
    }
  }
}

TEST(Exchange, EveryOperationKeepsANaN) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : ops) {
    with_op(op, [&](auto o) {
      using Op = decltype(o);
      const float first = Op::apply(Op::template identity<float>(), nan);
      EXPECT_TRUE(std::isnan(Op::apply(first, 1.0f))) << to_string(op);
      EXPECT_TRUE(std::isnan(Op::apply(1.0f, nan))) << to_string(op);
    });
  }
}

TEST(Exchange, EveryCollectivePlaceAndCount) {
  for (const Collective collective : collectives) {
    for (const int ranks : {1, 2, 4}) {
      for (const std::size_t count : {0, 1, 31, 32, 33, 64 * 3 + 1, 1009}) {
        for (const bool in_place : {false, true}) {
          run_case({.collective = collective,
                    .ranks = ranks,
                    .count = count,
                    .root = ranks - 1,
                    .in_place = in_place});
        }
      }
    }
  }
}

TEST(Exchange, DataThatIsNotAligned) {
  for (const Collective collective : collectives) {
    run_case({.collective = collective, .type = DataType::f16, .ranks = 2, .count = 333, .misplaced = 2});
    run_case({.collective = collective,
              .type = DataType::f16,
              .ranks = 3,
              .count = 333,
              .in_place = true,
              .misplaced = 6});
  }
}

TEST(Exchange, LittleDataThatEachReducesWhole) {
  constexpr std::size_t most = blocks * threads * per_pack<float>;
  for (const int ranks : {1, 2, 4, 16}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, most - 1, most}) {
      for (const bool in_place : {false, true}) {
        for (const std::size_t misplaced : {0, 4}) {
          run_case(
              {.ranks = ranks, .count = count, .in_place = in_place, .misplaced = misplaced, .whole = true});
        }
      }
    }
  }
}

/// Successive calls would race. Each call's output is the next one's input, in place, with ranks as far apart
/// as possible.
TEST(Exchange, CallsFollowEachOther) {
  constexpr int ranks = 4;
  constexpr std::uint32_t calls = 30;  // 4^30 < 2^63
  constexpr std::size_t count = 40;
  HostDevices devices(ranks, blocks, threads);
  std::vector<std::vector<std::int64_t>> values(ranks, std::vector<std::int64_t>(count, 1));
  constexpr std::uint64_t before = 0xffff'fff0U;  // call numbers exceed 32 bits during the test
  for (int rank = 0; rank < ranks; ++rank) {
    Mailbox& mailbox = *devices.exchange(rank, 1).mailboxes[rank];
    for (auto& slots : mailbox.slots) {
      for (Slot& slot : slots) slot.arrived = slot.done = before;
    }
    for (std::uint64_t& rounds : mailbox.rounds) rounds = before;
  }
  devices.run(
      [&](int rank) {
        std::vector<Exchange> kernels;
        for (std::uint32_t i = 0; i < calls; ++i) {
          Exchange e = devices.exchange(rank, before + i);
          e.call.count = i;
          e.input = e.output = {address_of(values[static_cast<std::size_t>(rank)].data()), 0};
          i % 2 == 0 ? set_range(e, Collective::all_reduce, count, sizeof(std::int64_t), 0)
                     : set_whole(e, 16);
          kernels.push_back(e);
        }
        return kernels;
      },
      [&](HostBlock& block, const Exchange& e, Meeting& meeting) {
        e.call.count % 2 == 0 ? exchange_ranges<std::int64_t, Sum>(block, e, meeting)
                              : exchange_all<std::int64_t, Sum>(block, e, meeting);
      });
  for (const auto& own : values) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t wanted = 1;
      for (std::uint32_t call = 0; call < (i < 16 ? calls : calls / 2); ++call) wanted *= ranks;
      ASSERT_EQ(static_cast<std::uint64_t>(own[i]), wanted) << i;
    }
  }
}

/// A replayed graph would not wait for its peers: the same kernels run with the same arguments, on their last
/// output.
TEST(Exchange, AReplayIsANewExchange) {
  constexpr int ranks = 3;
  constexpr std::size_t replays = 20;
  constexpr std::size_t count = 40;
  HostDevices devices(ranks, blocks, threads);
  std::vector<std::vector<std::int64_t>> values(ranks, std::vector<std::int64_t>(count, 1));
  devices.run(
      [&](int rank) {
        Exchange e = devices.exchange(rank, 0);
        e.input = e.output = {address_of(values[static_cast<std::size_t>(rank)].data()), 0};
        set_range(e, Collective::all_reduce, count, sizeof(std::int64_t), 0);
        return std::vector<Exchange>(replays, e);
      },
      [&](HostBlock& block, const Exchange& e, Meeting& meeting) {
        exchange_ranges<std::int64_t, Sum>(block, e, meeting);
      });
  std::int64_t wanted = 1;
  for (std::size_t i = 0; i < replays; ++i) wanted *= ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(values[static_cast<std::size_t>(rank)], std::vector<std::int64_t>(count, wanted));
    EXPECT_EQ(devices.status(rank).finished, 0U) << "it is no call of the host's";
  }
}

/// Processes would access wrong memory: each rank's memory has a different address in each peer.
TEST(Exchange, WindowsAreFoundWhereARankHasMappedThem) {
  constexpr int ranks = 3;
  constexpr std::size_t count = 300;
  HostDevices devices(ranks, blocks, threads);
  std::vector<std::vector<float>> inputs, outputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.emplace_back(count + 8, static_cast<float>(rank + 1));
    outputs.emplace_back(count * ranks, 0.0f);
  }
  std::vector<std::byte*> windows;
  for (auto* buffers : {&inputs, &outputs}) {
    for (auto& buffer : *buffers) windows.push_back(reinterpret_cast<std::byte*>(buffer.data()));
  }
  const auto in_window = [](Address number, std::size_t floats) {
    return (number << window_shift) + floats * sizeof(float);
  };
  devices.run(
      [&](int rank) {
        Exchange e = devices.exchange(rank, 1);
        e.windows = windows.data();
        e.input = {in_window(1, 8), 0};
        e.output = {in_window(2, 0), count * sizeof(float)};
        set_range(e, Collective::all_gather, count, sizeof(float), 0);
        return std::vector<Exchange>{e};
      },
      [](HostBlock& block, const Exchange& e, Meeting& meeting) {
        exchange_ranges<float, Sum>(block, e, meeting);
      });
  for (const auto& output : outputs) {
    for (std::size_t i = 0; i < output.size(); ++i)
      ASSERT_EQ(output[i], static_cast<float>(i / count + 1)) << i;
  }
}

TEST(Exchange, ARankThatDoesNotComeIsNamed) {
  constexpr int ranks = 3;
  HostDevices devices(ranks, blocks, threads);
  std::vector<std::vector<float>> values(ranks, std::vector<float>(100, 1.0f));
  devices.run(
      [&](int rank) {
        if (rank == 1) return std::vector<Exchange>{};
        Exchange e = devices.exchange(rank, 1);
        e.timeout_ns = 50'000'000;
        e.input = e.output = {address_of(values[static_cast<std::size_t>(rank)].data()), 0};
        set_range(e, Collective::all_reduce, 100, sizeof(float), 0);
        return std::vector<Exchange>{e};
      },
      [](HostBlock& block, const Exchange& e, Meeting& meeting) {
        exchange_ranges<float, Sum>(block, e, meeting);
      });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(devices.status(rank).late[1], 1 + 1U);
    EXPECT_EQ(devices.status(rank).late[2 - rank], 0U);
    EXPECT_EQ(values[static_cast<std::size_t>(rank)][0], 1.0f) << "nothing is written";
  }
}

TEST(Exchange, TheHostCanEndAWait) {
  HostDevices devices(2, blocks, threads);
  std::vector<float> values(100);
  devices.status(0).abort = 1;
  devices.run(
      [&](int rank) {
        if (rank == 1) return std::vector<Exchange>{};
        Exchange e = devices.exchange(rank, 1);
        e.timeout_ns = 3'600'000'000'000;
        e.input = e.output = {address_of(values.data()), 0};
        set_range(e, Collective::all_reduce, 100, sizeof(float), 0);
        return std::vector<Exchange>{e};
      },
      [](HostBlock& block, const Exchange& e, Meeting& meeting) {
        exchange_ranges<float, Sum>(block, e, meeting);
      });
  EXPECT_EQ(devices.status(0).late[1], 1 + 1U);
}

// Roots of large jobs would be confused, because ranks of one host may have high numbers.
TEST(Exchange, CallsOfHighRootsAreToldApart) {
  EXPECT_NE(CallCode{.root = 1}, CallCode{.root = 257});
  EXPECT_NE(CallCode{.type = DataType::u8}, CallCode{.type = DataType::bf16});
}

TEST(Exchange, RanksThatCallOtherThingsLearnWhat) {
  HostDevices devices(2, blocks, threads);
  std::vector<std::vector<float>> values(2, std::vector<float>(100, 1.0f));
  devices.run(
      [&](int rank) {
        Exchange e = devices.exchange(rank, 1);
        e.call.count = static_cast<std::uint64_t>(90 + rank);
        e.input = e.output = {address_of(values[static_cast<std::size_t>(rank)].data()), 0};
        set_range(e, Collective::all_reduce, e.call.count, sizeof(float), 0);
        return std::vector<Exchange>{e};
      },
      [](HostBlock& block, const Exchange& e, Meeting& meeting) {
        exchange_ranges<float, Sum>(block, e, meeting);
      });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(devices.status(rank).other[1 - rank], 1 + 1U);
    EXPECT_EQ(devices.status(rank).own.count, static_cast<std::uint64_t>(90 + rank));
    EXPECT_EQ(devices.status(rank).calls[1 - rank].count, static_cast<std::uint64_t>(91 - rank));
    EXPECT_EQ(values[static_cast<std::size_t>(rank)][0], 1.0f);
  }
}

}  // namespace
}  // namespace ddl::collectives::device
