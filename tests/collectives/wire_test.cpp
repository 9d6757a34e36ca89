// Conversions of f32 to 16 bits. Otherwise sums of gradients that travel in 16 bits between hosts would be
// wrong.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/kernels/kernel_table.hpp"
#include "collectives/kernels/reduce.hpp"
#include "ddl/float16.hpp"
#include "support/float_values.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t most = 70;

using test::values_of;

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

class WiresOfSets : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam() > native_instruction_set()) {
      GTEST_SKIP() << "this machine does not have " << to_string(GetParam());
    }
  }

  static const WireKernels& of(DataType type) {
    return kernels_of(GetParam()).wire[static_cast<std::size_t>(type)];
  }

  template <typename Narrow>
  static void expect_as_converted(const WireKernels& kernels, std::size_t count) {
    const std::vector<float> values = values_of(count, 4);
    std::vector<float> kept = values_of(count, 5);
    for (float& value : kept) value = std::isfinite(value) ? value : 1;
    std::vector<float> sums(count), rounded(count), left(count, 7), widened(count);
    std::ranges::transform(values, kept, sums.begin(), std::plus());
    std::vector<std::uint16_t> packed(count);
    kernels.round({values.data(), rounded.data(), kept.data(), left.data()}, count);
    kernels.narrow(sums.data(), packed.data(), count);
    kernels.widen(packed.data(), widened.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const float wanted = sums[i];
      const Narrow nearest(wanted);
      const float rest = wanted - static_cast<float>(nearest);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(widened[i]) && std::isnan(rounded[i])) << i;
      } else {
        EXPECT_EQ(packed[i], nearest.bits) << wanted;
        EXPECT_EQ(rounded[i], static_cast<float>(nearest)) << wanted;
        EXPECT_EQ(widened[i], rounded[i]) << wanted;
      }
      EXPECT_EQ(left[i], std::isfinite(rest) ? rest : 0.0F) << wanted;
    }
    std::vector<float> in_place = values;
    kernels.round({in_place.data(), in_place.data()}, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (std::isnan(values[i])) continue;
      EXPECT_EQ(in_place[i], static_cast<float>(Narrow(values[i]))) << values[i];
    }
  }

  template <typename Narrow>
  static void expect_all_widened(const WireKernels& kernels) {
    std::vector<std::uint16_t> packed(65'536);
    std::vector<float> widened(packed.size()), expected;
    for (std::size_t i = 0; i < packed.size(); ++i) {
      packed[i] = static_cast<std::uint16_t>(i);
      expected.push_back(static_cast<float>(Narrow::from_bits(packed[i])));
    }
    kernels.widen(packed.data(), widened.data(), packed.size());
    EXPECT_EQ(bits(widened), bits(expected));
  }
};

TEST_P(WiresOfSets, SixteenBitsAreThoseOfTheirTypes) {
  for (std::size_t count = 0; count <= most; ++count) {
    expect_as_converted<bfloat16>(of(DataType::bf16), count);
    expect_as_converted<float16>(of(DataType::f16), count);
  }
}

TEST_P(WiresOfSets, WidensAllSixteenBits) {
  expect_all_widened<bfloat16>(of(DataType::bf16));
  expect_all_widened<float16>(of(DataType::f16));
}

INSTANTIATE_TEST_SUITE_P(All, WiresOfSets,
                         testing::Values(InstructionSet::baseline, InstructionSet::avx2,
                                         InstructionSet::avx512),
                         [](const auto& set) { return std::string(to_string(set.param)); });

}  // namespace
}  // namespace ddl::collectives
