// The device code of collectives over the network, run by a thread of the host. Needs no device.

#include "collectives/device/network_body.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "ddl/data_type.hpp"
#include "device/host_blocks.hpp"
#include "device/test_numbers.hpp"

namespace ddl::collectives::device {
namespace {

void combine_on_host(const Combination& combination, DataType type, ReduceOp op) {
  with_type(type, [&](auto element) {
    with_op(op, [&](auto operation) {
      std::barrier<> barrier(1);
      HostBlock block(0, 1, 0, 1, barrier);
      Meeting meeting;
      combine<decltype(element), decltype(operation)>(block, combination, meeting);
    });
  });
}

/// Devices would combine numbers to other bits than the host's engine, for some alignment.
TEST(Combine, AsTheHostReduces) {
  for (const DataType type : {DataType::u8, DataType::i32, DataType::i64, DataType::f32, DataType::f64,
                              DataType::f16, DataType::bf16}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
      for (const std::size_t count : {1, 15, 1000, 4099}) {
        for (const std::size_t first : {0, 1}) {
          const std::size_t element = size_of(type);
          auto own = random_bytes(type, count + first, 1);
          const auto other = random_bytes(type, count + first, 2);
          std::vector<std::byte> sum = own;
          std::byte* const target = sum.data() + first * element;
          const std::byte* sources[] = {own.data() + first * element, other.data() + first * element};
          collectives::reduce(type, op, std::span(&target, 1), sources, count);

          std::byte* const place = own.data() + first * element;
          combine_on_host({.sources = {place, sources[1]}, .target = place, .elements = count}, type, op);
          EXPECT_EQ(own, sum) << to_string(type) << ' ' << to_string(op) << ' ' << count;

          if (op != ReduceOp::avg) continue;
          constexpr int ranks = 3;
          const std::byte* const undivided = target;
          std::vector<std::byte> mean(count * element), found(count * element);
          std::byte* const to = mean.data();
          collectives::reduce(type, op, std::span(&to, 1), std::span(&undivided, 1), count, ranks);
          combine_on_host({.sources = {undivided, nullptr},
                           .target = found.data(),
                           .operands = 1,
                           .divisor = ranks,
                           .elements = count},
                          type, op);
          EXPECT_EQ(found, mean) << to_string(type) << ' ' << count;
        }
      }
    }
  }
}

/// A block whose clock advances while it pauses, with scripted events.
class ScriptedBlock {
 public:
  explicit ScriptedBlock(std::function<void(std::uint64_t)> script) : script_(std::move(script)) {}
  template <typename T>
  [[nodiscard]] static T load(const T& flag) {
    return flag;
  }
  static void tell(std::uint64_t& flag, std::uint64_t value) { flag = value; }
  [[nodiscard]] std::uint64_t now_ns() const { return now_; }
  void pause() {
    now_ += 10;
    script_(now_);
  }

 private:
  std::uint64_t now_ = 0;
  std::function<void(std::uint64_t)> script_;
};

constexpr std::uint64_t timeout = 1000;

TEST(Hold, UntilTheCallIsOver) {
  Gate gate;
  constexpr std::uint64_t call = 0x1'0000'0001;  // exceeds 32 bits
  gate.released = call - 2;
  ScriptedBlock block([&](std::uint64_t now) {
    if (now == 500) gate.released = call - 1;
    if (now == 700) gate.released = call + 1;
  });
  hold(block, gate, call, timeout);
  EXPECT_EQ(block.now_ns(), 700U);
  hold(block, gate, call + 1, timeout);
  EXPECT_EQ(block.now_ns(), 700U);
  EXPECT_EQ(gate.expired, 0U);
}

TEST(Hold, EndsWhenNobodyIsToWait) {
  Gate gate;
  ScriptedBlock block([&](std::uint64_t now) { gate.opened = now == 300 ? 1 : gate.opened; });
  hold(block, gate, 1, timeout);
  EXPECT_EQ(block.now_ns(), 300U);
  EXPECT_EQ(gate.expired, 0U);
}

/// A long call would end with an error, or a kernel would wait forever for a host thread that makes no
/// progress.
TEST(Hold, EndsWhenTheHostsThreadStandsStill) {
  Gate gate;
  ScriptedBlock block([&](std::uint64_t now) {
    if (now <= 5000) ++gate.beat;
  });
  hold(block, gate, 7, timeout);
  EXPECT_GT(block.now_ns(), 5000U + timeout);
  EXPECT_LT(block.now_ns(), 5000U + 2 * timeout);
  EXPECT_EQ(gate.expired, 7U);
}

}  // namespace
}  // namespace ddl::collectives::device
