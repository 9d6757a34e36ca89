// Memory for collectives. Otherwise trainers would read garbage, or free memory that others still use.

#include "ddl/shared_buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ddl/context.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::error_of;

void check(Context& context) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
    SharedBuffer<float> buffer = allocate<float>(context, count);
    ASSERT_EQ(buffer.size(), count);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    ASSERT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](float x) { return x == 0; })) << count;
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    context.communicator().all_reduce(buffer.span());
    ASSERT_TRUE(std::all_of(buffer.begin(), buffer.end(), [&](float x) {
      return x == static_cast<float>(context.size());
    })) << count;
  }
}

TEST(SharedBuffer, HoldsZerosAndIsReduced) {
  run_in_process(3, check);
  Context alone = Context::from_environment();
  check(alone);
}

// Freed memory that is allocated again would hold old values.
TEST(SharedBuffer, HoldsZerosAgain) {
  run_in_process(2, [](Context& context) {
    for (int i = 0; i < 20; ++i) {
      SharedBuffer<std::uint8_t> buffer = allocate<std::uint8_t>(context, 10'000);
      ASSERT_EQ(std::accumulate(buffer.begin(), buffer.end(), 0), 0);
      std::fill(buffer.begin(), buffer.end(), std::uint8_t{9});
    }
  });
}

TEST(SharedBuffer, MovesAndOutlivesItsContext) {
  std::vector<SharedBuffer<double>> kept(2);
  run_in_process(2, [&](Context& context) {
    SharedBuffer<double> buffer = allocate<double>(context, 5'000);
    buffer[4'999] = context.rank() + 1;
    SharedBuffer<double> other = std::move(buffer);
    kept[static_cast<std::size_t>(context.rank())] = std::move(other);
  });
  EXPECT_EQ(kept[0][4'999], 1);
  EXPECT_EQ(kept[1][4'999], 2);
}

TEST(SharedBuffer, NothingAndTooMuch) {
  run_in_process(1, [](Context& context) {
    EXPECT_EQ(allocate<float>(context, 0).size(), 0U);
    EXPECT_EQ(allocate<float>(context, 0).span().size(), 0U);
    for (const std::size_t count :
         {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 4}) {
      const Error error = error_of([&] { allocate<double>(context, count); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("which no memory can hold"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(error_of([&] { allocate_bytes(context, std::size_t{1} << 60); }).code(), ErrorCode::transport);
  });
}

}  // namespace
}  // namespace ddl
