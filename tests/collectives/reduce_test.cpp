// The reduction kernels on their own.

#include "collectives/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace ddl::collectives {
namespace {

template <Element T>
std::vector<T> reduced(ReduceOp op, std::vector<T> a, const std::vector<T>& b) {
  reduce(data_type_of<T>(), op, a.data(), b.data(), a.size());
  return a;
}

template <Element T>
std::vector<T> finished(std::vector<T> values, int ranks) {
  finish(data_type_of<T>(), ReduceOp::avg, values.data(), values.size(), ranks);
  return values;
}

// Transports hand over bytes from anywhere in a stream.
TEST(Reduce, TakesDataThatIsNotAligned) {
  constexpr std::size_t count = 1031;
  for (std::size_t shift_a = 0; shift_a < 8; ++shift_a) {
    for (std::size_t shift_b = 0; shift_b < 8; ++shift_b) {
      std::vector<std::byte> a(count * 8 + 8);
      std::vector<std::byte> b(count * 8 + 8);
      for (std::size_t i = 0; i < count; ++i) {
        const double x = static_cast<double>(i);
        const double y = 2 * x;
        std::memcpy(a.data() + shift_a + i * 8, &x, 8);
        std::memcpy(b.data() + shift_b + i * 8, &y, 8);
      }
      reduce(DataType::f64, ReduceOp::sum, a.data() + shift_a, b.data() + shift_b, count);
      for (std::size_t i = 0; i < count; ++i) {
        double z = 0;
        std::memcpy(&z, a.data() + shift_a + i * 8, 8);
        ASSERT_EQ(z, 3.0 * static_cast<double>(i));
      }
    }
  }
}

// The vectorised body and the rest of a loop must agree.
TEST(Reduce, EveryLength) {
  for (std::size_t count = 0; count < 200; ++count) {
    std::vector<float> a(count + 1, 1);
    const std::vector<float> b(count + 1, 2);
    reduce(DataType::f32, ReduceOp::sum, a.data(), b.data(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(a[i], 3);
    ASSERT_EQ(a[count], 1) << "wrote past the end";
  }
}

TEST(Reduce, NotANumberWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const auto result = reduced<float>(op, {nan, 1, nan, 1}, {1, nan, nan, 2});
    EXPECT_TRUE(std::isnan(result[0]));
    EXPECT_TRUE(std::isnan(result[1]));
    EXPECT_TRUE(std::isnan(result[2]));
    EXPECT_EQ(result[3], op == ReduceOp::min ? 1 : 2);
    const double nan64 = nan;
    const auto wide = reduced<double>(op, {nan64, -3}, {0, nan64});
    EXPECT_TRUE(std::isnan(wide[0]) && std::isnan(wide[1]));
  }
}

TEST(Reduce, SignedIntegersCompareAsSigned) {
  EXPECT_EQ(reduced<std::int32_t>(ReduceOp::min, {-5, 3}, {2, 4}), (std::vector<std::int32_t>{-5, 3}));
  EXPECT_EQ(reduced<std::int64_t>(ReduceOp::max, {-5, 3}, {-6, 4}), (std::vector<std::int64_t>{-5, 4}));
  EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::max, {200}, {100}), (std::vector<std::uint8_t>{200}));
}

TEST(Reduce, IntegersWrapAround) {
  EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::sum, {250}, {10}), (std::vector<std::uint8_t>{4}));
  EXPECT_EQ(reduced<std::int32_t>(ReduceOp::sum, {std::numeric_limits<std::int32_t>::max()}, {1}),
            (std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min()}));
  EXPECT_EQ(reduced<std::int64_t>(ReduceOp::prod, {std::int64_t{1} << 62}, {4}),
            (std::vector<std::int64_t>{0}));
}

TEST(Finish, AverageOfIntegersTruncatesTowardsZero) {
  EXPECT_EQ(finished<std::int32_t>({-7, 7, -1, 9}, 3), (std::vector<std::int32_t>{-2, 2, 0, 3}));
  EXPECT_EQ(finished<std::int64_t>({-7}, 2), (std::vector<std::int64_t>{-3}));
  EXPECT_EQ(finished<std::uint8_t>({255}, 300), (std::vector<std::uint8_t>{0}));
  EXPECT_EQ(finished<float>({-7}, 2), (std::vector<float>{-3.5F}));
}

TEST(Finish, LeavesOtherOperationsAlone) {
  float value = 6;
  finish(DataType::f32, ReduceOp::sum, &value, 1, 3);
  EXPECT_EQ(value, 6);
}

}  // namespace
}  // namespace ddl::collectives
