// The yardstick itself: an Inputs that takes a wrong result for right would hide every error of a collective.

#include "matrix/values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace matrix {
namespace {

using ddl::DataType;
using ddl::ReduceOp;

constexpr std::size_t count = 2500;

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <typename T>
std::vector<T> input(const Inputs& inputs, int rank, std::size_t first = 0) {
  std::vector<T> values(count);
  inputs.write(rank, first, bytes_of(values));
  return values;
}

/// All ranks' values, combined by `combine` one after the other.
template <typename T, typename Combine>
std::vector<T> combined(const Inputs& inputs, int ranks, Combine combine) {
  std::vector<T> result = input<T>(inputs, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> next = input<T>(inputs, rank);
    for (std::size_t i = 0; i < count; ++i) result[i] = combine(result[i], next[i]);
  }
  return result;
}

Case reduction(DataType type, ReduceOp op, Values values) {
  Case one;
  one.type = type;
  one.op = op;
  one.values = values;
  one.ranks = 16;
  return one;
}

TEST(Inputs, TakesARoundedSumAndNoOther) {
  const Inputs inputs(reduction(DataType::f32, ReduceOp::sum, Values::fractions));
  std::vector<float> sum = combined<float>(inputs, 16, [](float a, float b) { return a + b; });
  EXPECT_EQ(inputs.differ_from_reduction(0, bytes_of(sum)), 0U);
  sum[3] += 0.001F;
  sum[2400] = std::numeric_limits<float>::quiet_NaN();
  sum[2401] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(inputs.differ_from_reduction(0, bytes_of(sum)), 3U);
}

TEST(Inputs, IntegerSumsAreExact) {
  const Inputs floats(reduction(DataType::f32, ReduceOp::sum, Values::integers));
  std::vector<float> sum = combined<float>(floats, 16, [](float a, float b) { return a + b; });
  EXPECT_EQ(floats.differ_from_reduction(0, bytes_of(sum)), 0U);
  sum[5] = std::nextafter(sum[5], 1000.0F);
  EXPECT_EQ(floats.differ_from_reduction(0, bytes_of(sum)), 1U);
  const Inputs bytes(reduction(DataType::u8, ReduceOp::sum, Values::integers));
  std::vector<std::uint8_t> byte_sum = combined<std::uint8_t>(
      bytes, 16, [](std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>(a + b); });
  EXPECT_EQ(bytes.differ_from_reduction(0, bytes_of(byte_sum)), 0U);
  ++byte_sum[0];
  EXPECT_EQ(bytes.differ_from_reduction(0, bytes_of(byte_sum)), 1U);
}

TEST(Inputs, AveragesOfIntegersTruncateTowardsZero) {
  const Inputs inputs(reduction(DataType::i32, ReduceOp::avg, Values::integers));
  std::vector<std::int32_t> sum = combined<std::int32_t>(inputs, 16, std::plus());
  const auto negative = std::ranges::find_if(sum, [](std::int32_t v) { return v < 0 && v % 16 != 0; });
  ASSERT_NE(negative, sum.end());
  std::vector<std::int32_t> rounded_down = sum;
  for (std::int32_t& value : sum) value /= 16;
  for (std::int32_t& value : rounded_down) value = static_cast<std::int32_t>(std::floor(value / 16.0));
  EXPECT_EQ(inputs.differ_from_reduction(0, bytes_of(sum)), 0U);
  EXPECT_GT(inputs.differ_from_reduction(0, bytes_of(rounded_down)), 0U);
}

TEST(Inputs, NaNMustStayWhereItIs) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    const Inputs inputs(reduction(DataType::f64, op, Values::not_a_number));
    std::vector<double> right = combined<double>(inputs, 16, [&](double a, double b) {
      if (op == ReduceOp::sum || std::isnan(a) || std::isnan(b)) return a + b;
      return op == ReduceOp::min ? std::min(a, b) : std::max(a, b);
    });
    EXPECT_EQ(inputs.differ_from_reduction(0, bytes_of(right)), 0U);
    const auto nan = std::ranges::find_if(right, [](double v) { return std::isnan(v); });
    ASSERT_NE(nan, right.end());
    *nan = 0;
    EXPECT_EQ(inputs.differ_from_reduction(0, bytes_of(right)), 1U);
  }
}

TEST(Inputs, SeesAnotherRanksInputAndAnotherPlace) {
  const Inputs inputs(reduction(DataType::bf16, ReduceOp::sum, Values::not_a_number));
  std::vector<ddl::bfloat16> values = input<ddl::bfloat16>(inputs, 3, 77);
  EXPECT_EQ(inputs.differ_from_input(3, 77, bytes_of(values)), 0U);
  EXPECT_GT(inputs.differ_from_input(2, 77, bytes_of(values)), count / 2);
  EXPECT_GT(inputs.differ_from_input(3, 78, bytes_of(values)), count / 2);
}

}  // namespace
}  // namespace matrix
