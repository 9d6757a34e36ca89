// Copies of parameters that the cpu backend multiplies with.

#include "nmt_example/backend/products.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include "ddl/data_type.hpp"
#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

constexpr std::int64_t rows = 32, inner = 64, cols = 256;
constexpr std::size_t bytes_of_copy = inner * cols * sizeof(float);

class ProductsTest : public testing::Test {
 protected:
  ProductsTest() : a_(random_.values(rows, inner)), x_(memory_.tensor(a_)) {}

  /// Gives all parameters other values.
  void change() {
    values_.clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      values_.push_back(random_.values(inner, cols));
      memory_.write(parameters_[i], values_[i]);
    }
    products_.forget();
  }
  void expect_product(std::size_t i) {
    products_.multiply_packed(x_, Transpose::no, parameters_[i], false, result_);
    Values expected(rows, cols);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        for (std::int64_t k = 0; k < inner; ++k) expected(r, c) += a_(r, k) * values_[i](k, c);
    ASSERT_TRUE(close(memory_.read(result_), expected, 1e-4)) << "parameter " << i;
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend(2);
  Memory memory_{*backend_, Layout::contiguous};
  Random random_{3};
  Values a_;
  Tensor x_, result_ = memory_.tensor(rows, cols);
  std::vector<Tensor> parameters_ = std::vector(6, Tensor());
  std::vector<Values> values_;
  cpu::Products products_;

  void SetUp() override {
    for (Tensor& parameter : parameters_) parameter = memory_.tensor(inner, cols);
  }
};

// A model would take its parameters' memory once more for each orientation in which they are multiplied.
TEST_F(ProductsTest, CopiesThatAreUsedOneAfterTheOtherShareTheirMemory) {
  for (int version = 0; version < 3; ++version) {
    change();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      for (int repetition = 0; repetition < 3; ++repetition) expect_product(i);
    }
    EXPECT_LT(products_.bytes(), 2 * bytes_of_copy);
  }
}

// A decoder whose layers take turns at each word would make all copies anew at each word.
TEST_F(ProductsTest, CopiesThatTakeTurnsStay) {
  const auto take_turns = [&](std::size_t first, std::size_t last) {
    for (int turn = 0; turn < 10; ++turn) {
      for (std::size_t i = first; i < last; ++i) expect_product(i);
    }
  };
  std::size_t grown = 0;
  for (int version = 0; version < 5; ++version) {
    change();
    take_turns(0, 2);
    take_turns(2, 6);
    if (version == 1) grown = products_.bytes();
  }
  EXPECT_GE(grown, 4 * bytes_of_copy);
  EXPECT_LE(grown, 6 * bytes_of_copy);
  EXPECT_EQ(products_.bytes(), grown);
}

// They would take Intel's processors several times as long as other numbers.
TEST_F(ProductsTest, SubnormalNumbersAreTakenAsZero) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "this processor has no mode for it that the backend sets";
#endif
  const Tensor ones = memory_.tensor(inner, cols);
  memory_.write(ones, Values(inner, cols, 1));
  memory_.write(x_, Values(rows, inner, 0x1p-127));  // each sum of `inner` of them is a normal number
  backend_->multiply(x_, Transpose::no, ones, false, result_);
  EXPECT_TRUE(close(memory_.read(result_), Values(rows, cols), 0));
}

// The gradient of a large vocabulary would need twice its size in fp32 besides; a step of the reference
// model, 300 MB more.
TEST(Products, GradientsOf16BitsNeedLittleMemoryBesides) {
  constexpr std::int64_t samples = 256, units = 96, words = 50'001;
  static_assert(units * words > std::int64_t{1} << 22);
  const auto narrow = [](const Values& values) {
    return std::vector<ddl::bfloat16>(values.data.begin(), values.data.end());
  };
  Random random(5);
  const Values x = random.values(samples, words), y = random.values(samples, units);
  std::vector<ddl::bfloat16> a = narrow(x), b = narrow(y), c = narrow(Values(words, units, 1));
  const auto tensor = [](std::vector<ddl::bfloat16>& values, std::int64_t height, std::int64_t width) {
    return Tensor(values.data(), height, width, width, ddl::DataType::bf16);
  };
  cpu::Products products;
  products.multiply(Transpose::yes, Transpose::no, tensor(a, samples, words), tensor(b, samples, units), true,
                    tensor(c, words, units));
  for (std::int64_t word = 0; word < words; word += word < words - 200 ? 97 : 1) {
    for (std::int64_t unit = 0; unit < units; unit += 5) {
      double expected = 1;
      for (std::int64_t k = 0; k < samples; ++k)
        expected += static_cast<float>(a[static_cast<std::size_t>(k * words + word)]) *
                    static_cast<float>(b[static_cast<std::size_t>(k * units + unit)]);
      ASSERT_NEAR(static_cast<float>(c[static_cast<std::size_t>(word * units + unit)]), expected,
                  0.01 * (1 + std::abs(expected)))
          << "unit " << unit << ", word " << word;
    }
  }
  EXPECT_LT(products.bytes(), std::size_t{36} << 20);
}

}  // namespace
}  // namespace nmt::test
