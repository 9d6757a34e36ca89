#include "ddl/gradients/elementwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ddl/float16.hpp"
#include "ddl/gradients/elementwise_kernels.hpp"

namespace {

using ddl::collectives::InstructionSet;
namespace elementwise = ddl::elementwise;

/// Numbers of all sizes, and what is not one.
std::vector<float> values_of(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value =
        std::ldexp(static_cast<float>(random() % 16'000'000U) - 8e6f, static_cast<int>(random() % 60) - 50);
  }
  const float special[] = {0.0f,
                           -0.0f,
                           1e-42f,
                           65'519.9f,
                           65'520.0f,
                           -3e38f,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  for (const float value : special) {
    if (count > 0) values[random() % count] = value;
  }
  return values;
}

std::vector<float> finite(std::vector<float> values) {
  for (float& value : values) value = std::isfinite(value) ? value : 1.5f;
  return values;
}

/// Bits; all NaN are alike.
std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc0'0000U : std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

class Elementwise : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam() > ddl::collectives::native_instruction_set()) {
      GTEST_SKIP() << "this machine does not have " << to_string(GetParam());
    }
  }
  const elementwise::Kernels& kernels = elementwise::kernels_of(GetParam());
};

constexpr std::size_t most = 70;  // more than four rounds of the loops, and every rest
constexpr double factor = 1.0 / 3;

TEST_P(Elementwise, ScalesInDoubleAndRoundsOnce) {
  for (std::size_t count = 0; count <= most; ++count) {
    const auto source = values_of(count, 1);
    const auto before = values_of(count, 2);
    std::vector<float> scaled = source;
    std::vector<float> target(count + 1, 7.0f);  // one more must stay as it is
    std::vector<float> sum = before;
    kernels.scale(scaled.data(), count, factor);
    kernels.scale_into(target.data(), source.data(), count, factor);
    kernels.add_scaled(sum.data(), source.data(), count, factor);
    std::vector<float> expected(count), expected_sum(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = static_cast<float>(source[i] * factor);
      const double product = source[i] * factor;
      expected_sum[i] = static_cast<float>(before[i] + product);
    }
    EXPECT_EQ(bits(scaled), bits(expected)) << count;
    EXPECT_EQ(bits(sum), bits(expected_sum)) << count;
    EXPECT_EQ(target.back(), 7.0f);
    target.pop_back();
    EXPECT_EQ(bits(target), bits(expected)) << count;
  }
}

TEST_P(Elementwise, SumsOfSquaresHaveOneOrder) {
  for (std::size_t count = 0; count <= most; ++count) {
    const auto values = finite(values_of(count, 3));
    double lanes[16] = {};
    const std::size_t whole = count - count % 16;
    for (std::size_t i = 0; i < whole; ++i) lanes[i % 16] += static_cast<double>(values[i]) * values[i];
    double expected = 0;
    for (const double lane : lanes) expected += lane;
    for (std::size_t i = whole; i < count; ++i) expected += static_cast<double>(values[i]) * values[i];
    EXPECT_EQ(kernels.sum_of_squares(values.data(), count), expected) << count;

    std::vector<float> scaled = values;
    EXPECT_EQ(kernels.square_and_scale(scaled.data(), count, factor), expected) << count;
    std::vector<float> only_scaled = values;
    kernels.scale(only_scaled.data(), count, factor);
    EXPECT_EQ(bits(scaled), bits(only_scaled)) << count;
  }
}

TEST_P(Elementwise, WhatIsNotFiniteShowsInTheSum) {
  for (std::size_t at = 0; at < most; ++at) {
    std::vector<float> values(most, 1.0f);
    values[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(kernels.square_and_scale(values.data(), most, factor))) << at;
    values.assign(most, 3e38f);
    EXPECT_TRUE(std::isfinite(kernels.sum_of_squares(values.data(), most)));
  }
}

template <typename Narrow>
void expect_as_converted(const std::vector<float>& values, const std::vector<float>& residual,
                         const std::vector<std::uint16_t>& wire, const std::vector<float>& left,
                         const std::vector<float>& decoded) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float wanted = values[i] + residual[i];
    const Narrow sent(wanted);
    const float rest = wanted - static_cast<float>(sent);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(decoded[i])) << i;
    } else {
      EXPECT_EQ(wire[i], sent.bits) << wanted;
      EXPECT_EQ(decoded[i], static_cast<float>(sent)) << wanted;
    }
    EXPECT_EQ(left[i], std::isfinite(rest) ? rest : 0.0f) << wanted;
  }
}

TEST_P(Elementwise, SixteenBitsAreThoseOfTheirTypes) {
  for (std::size_t count = 0; count <= most; ++count) {
    const auto values = values_of(count, 4);
    const auto residual = finite(values_of(count, 5));
    std::vector<std::uint16_t> wire(count);
    std::vector<float> left(count), decoded(count);
    const elementwise::Encoding encoding{values.data(), residual.data(), wire.data(), left.data()};
    kernels.encode_bf16(encoding, count);
    kernels.decode_bf16(wire.data(), decoded.data(), count);
    expect_as_converted<ddl::bfloat16>(values, residual, wire, left, decoded);
    kernels.encode_f16(encoding, count);
    kernels.decode_f16(wire.data(), decoded.data(), count);
    expect_as_converted<ddl::float16>(values, residual, wire, left, decoded);
  }
}

TEST_P(Elementwise, DecodesAllSixteenBits) {
  std::vector<std::uint16_t> wire(65'536);
  for (std::size_t i = 0; i < wire.size(); ++i) wire[i] = static_cast<std::uint16_t>(i);
  std::vector<float> bf16(wire.size()), f16(wire.size()), expected_bf16, expected_f16;
  kernels.decode_bf16(wire.data(), bf16.data(), wire.size());
  kernels.decode_f16(wire.data(), f16.data(), wire.size());
  for (const std::uint16_t sent : wire) {
    expected_bf16.push_back(static_cast<float>(ddl::bfloat16::from_bits(sent)));
    expected_f16.push_back(static_cast<float>(ddl::float16::from_bits(sent)));
  }
  EXPECT_EQ(bits(bf16), bits(expected_bf16));
  EXPECT_EQ(bits(f16), bits(expected_f16));
}

INSTANTIATE_TEST_SUITE_P(Sets, Elementwise, testing::Values(InstructionSet::baseline, InstructionSet::avx2),
                         [](const auto& set) { return std::string(to_string(set.param)); });

}  // namespace
