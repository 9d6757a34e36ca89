// The reduction kernels, against integer and fp64 arithmetic.

#include "collectives/kernels/reduce.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "collectives/reduce_reference.hpp"

namespace ddl::collectives {
namespace {

constexpr std::array operations = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                                   ReduceOp::prod};

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> result;
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
    if (set <= native_instruction_set()) result.push_back(set);
  }
  return result;
}

template <Element T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// Half of the values are small numbers, half are random bits: NaN, infinities, subnormal numbers.
template <Element T>
std::vector<T> random_values(std::mt19937_64& random, std::size_t count) {
  std::vector<T> values(count);
  for (T& value : values) {
    const std::uint64_t bits = random();
    if ((bits & 1) != 0) {
      value = from_bits<T>(random());
    } else if constexpr (is_narrow<T>) {
      value = T(static_cast<float>(static_cast<int>(bits >> 1 & 63) - 31) / 4);
    } else {
      value = static_cast<T>(static_cast<int>(bits >> 1 & 63) - 31);
    }
  }
  return values;
}

/// Memory of an operand between guard bytes, which must not be written to.
template <Element T>
class Operand {
 public:
  /// The operand starts `shift` bytes, below 64, after a multiple of 64.
  Operand(std::size_t count, std::size_t shift)
      : bytes_(guard + 128 + count * sizeof(T) + guard, fill), count_(count) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(bytes_.data() + guard) % 64;
    start_ = guard + (64 - misaligned) + shift;
  }

  [[nodiscard]] std::byte* data() { return bytes_.data() + start_; }
  void set(const std::vector<T>& values) {
    if (count_ > 0) std::memcpy(data(), values.data(), count_ * sizeof(T));
  }
  [[nodiscard]] std::vector<T> get() {
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), data(), count_ * sizeof(T));
    return values;
  }
  [[nodiscard]] bool is_guarded() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const bool inside = i >= start_ && i < start_ + count_ * sizeof(T);
      if (!inside && bytes_[i] != fill) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 128;
  static constexpr std::byte fill{0xa5};

  std::vector<std::byte> bytes_;
  std::size_t count_;
  std::size_t start_ = 0;
};

struct Case {
  InstructionSet set = InstructionSet::baseline;
  ReduceOp op = ReduceOp::sum;
  std::size_t targets = 1;
  int divisor = 1;
  bool in_place = false;
  std::size_t shift = 0;          // offset of the first operand from a multiple of 64 bytes
  std::size_t shift_of_next = 0;  // additional offset of each next operand
  Stores stores = Stores::automatic;
};

/// In place, the targets are the first inputs. Other inputs must not change.
template <Element T>
void run_case(const Case& which, const std::vector<std::vector<T>>& inputs, const std::vector<T>& expected) {
  SCOPED_TRACE(fmt::format("{} {} {}: {} x {} -> {}, divisor {}, in place {}, shifts {} + {}",
                           to_string(which.set), to_string(data_type_of<T>()), to_string(which.op),
                           inputs.size(), expected.size(), which.targets, which.divisor, which.in_place,
                           which.shift, which.shift_of_next));
  const std::size_t count = expected.size();
  std::vector<Operand<T>> operands;
  const std::size_t aliased = which.in_place ? std::min(inputs.size(), which.targets) : 0;
  const std::size_t total = inputs.size() + which.targets - aliased;
  operands.reserve(total);
  for (std::size_t i = 0; i < total; ++i) {
    operands.emplace_back(count, (which.shift + i * which.shift_of_next) % 64);
    if (i < inputs.size()) operands.back().set(inputs[i]);
  }
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (std::size_t i = 0; i < inputs.size(); ++i) from.push_back(operands[i].data());
  for (std::size_t i = 0; i < which.targets; ++i) {
    to.push_back(operands[i < aliased ? i : inputs.size() + i - aliased].data());
  }

  reduce_with(which.set, data_type_of<T>(), which.op, to, from, count, which.divisor, which.stores);

  for (std::size_t k = 0; k < total; ++k) {
    ASSERT_TRUE(operands[k].is_guarded()) << "wrote outside operand " << k;
    const bool is_target = k < aliased || k >= inputs.size();
    const std::vector<T> found = operands[k].get();
    for (std::size_t i = 0; i < count; ++i) {
      if (is_target) {
        ASSERT_TRUE(is_equal(found[i], expected[i])) << "operand " << k << ", element " << i;
      } else {
        ASSERT_EQ(std::memcmp(&found[i], &inputs[k][i], sizeof(T)), 0) << "input " << k << ", element " << i;
      }
    }
  }
}

template <Element T>
std::vector<T> reference(ReduceOp op, const std::vector<std::vector<T>>& inputs, int divisor) {
  std::vector<T> result;
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    result.push_back(reduced_element<T>(op, inputs, i, divisor));
  }
  return result;
}

template <Element T>
std::vector<std::vector<T>> random_inputs(std::size_t inputs, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<T>> result;
  for (std::size_t i = 0; i < inputs; ++i) result.push_back(random_values<T>(random, count));
  return result;
}

template <typename T>
class ReduceOf : public testing::Test {};
struct TypeName {
  template <typename T>
  static std::string GetName(int) {
    return std::string(to_string(data_type_of<T>()));
  }
};
using Types = testing::Types<std::uint8_t, std::int32_t, std::int64_t, float, double, float16, bfloat16>;
TYPED_TEST_SUITE(ReduceOf, Types, TypeName);

// Training with some type, operation, number of ranks or length would give wrong results on some machines.
TYPED_TEST(ReduceOf, EveryOperationShapeAndInstructionSet) {
  using T = TypeParam;
  std::uint64_t number = 0;
  for (const std::size_t inputs : {1U, 2U, 3U, 4U, 5U, 6U, 17U, 24U}) {
    for (const std::size_t count : {0U, 1U, 2U, 7U, 64U, 127U, 1041U}) {
      const auto values = random_inputs<T>(inputs, count, ++number);
      for (const ReduceOp op : operations) {
        const int divisor = op == ReduceOp::avg ? static_cast<int>(inputs) : 1;
        const auto expected = reference(op, values, divisor);
        for (const InstructionSet set : instruction_sets()) {
          for (std::size_t targets = 1; targets <= 6; ++targets) {
            const bool in_place = ++number % 2 == 0;
            const std::size_t shift = number % 3 == 0 ? 0 : number % 64;
            const std::size_t next = number % 5 == 0 ? 0 : number % 7;
            run_case<T>({set, op, targets, divisor, in_place, shift, next}, values, expected);
            if (this->HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// The ends of a message would be lost or counted twice.
TYPED_TEST(ReduceOf, EveryLengthInPlaceAndStreamed) {
  using T = TypeParam;
  for (std::size_t count = 0; count < 600; count += count < 150 ? 1 : 37) {
    const auto values = random_inputs<T>(2, count, count);
    const auto expected = reference(ReduceOp::sum, values, 1);
    for (const InstructionSet set : instruction_sets()) {
      run_case<T>({set, ReduceOp::sum, 2, 1, true}, values, expected);
      const std::size_t shift = count * sizeof(T) % 64;
      run_case<T>({set, ReduceOp::sum, 2, 1, false, shift, 0, Stores::streaming}, values, expected);
      run_case<T>({set, ReduceOp::sum, 1, 1, false, count % 64, 0, Stores::streaming}, values, expected);
      if (this->HasFatalFailure()) return;
    }
  }
}

// Large messages, which use streaming stores and process many operands in blocks, would be reduced wrongly.
TYPED_TEST(ReduceOf, LargeMessages) {
  using T = TypeParam;
  const std::size_t count = (std::size_t{5} << 20) / sizeof(T) + 5;
  std::vector<std::vector<T>> values(2);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto some = random_inputs<T>(1, 4093, 7 + i)[0];
    while (values[i].size() < count) values[i].insert(values[i].end(), some.begin(), some.end());
    values[i].resize(count);
  }
  const auto expected = reference(ReduceOp::sum, values, 1);
  run_case<T>({native_instruction_set(), ReduceOp::sum, 2, 1, false}, values, expected);
  run_case<T>({native_instruction_set(), ReduceOp::sum, 2, 1, true}, values, expected);
  const auto many = random_inputs<T>(33, 5'003, 1);
  const auto expected_of_many = reference(ReduceOp::avg, many, 33);
  for (const InstructionSet set : instruction_sets()) {
    run_case<T>({set, ReduceOp::avg, 33, 33, true, 1, 3}, many, expected_of_many);
  }
}

// Ranks on different machines would end with different bits.
TYPED_TEST(ReduceOf, SameBitsFromAllInstructionSets) {
  using T = TypeParam;
  constexpr std::size_t count = 20'011;
  const auto values = random_inputs<T>(3, count, 99);
  for (const ReduceOp op : operations) {
    std::vector<std::vector<T>> results;
    for (const InstructionSet set : instruction_sets()) {
      std::vector<const std::byte*> from;
      for (const auto& value : values) from.push_back(reinterpret_cast<const std::byte*>(value.data()));
      results.emplace_back(count);
      const std::array to = {reinterpret_cast<std::byte*>(results.back().data())};
      reduce_with(set, data_type_of<T>(), op, to, from, count, op == ReduceOp::avg ? 3 : 1);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(is_same(results.back()[i], results[0][i]))
            << to_string(set) << " " << to_string(op) << ", element " << i;
      }
    }
  }
}

// A copy would change bits, such as NaN payloads or minus zero.
TYPED_TEST(ReduceOf, OneInputIsCopied) {
  using T = TypeParam;
  const auto values = random_inputs<T>(1, 30'011, 5)[0];
  std::array<std::vector<T>, 3> results;
  for (auto& result : results) result.resize(values.size());
  std::vector<std::byte*> to;
  for (auto& result : results) to.push_back(reinterpret_cast<std::byte*>(result.data()));
  const std::array from = {reinterpret_cast<const std::byte*>(values.data())};
  for (const ReduceOp op : operations) {
    for (auto& result : results) std::memset(result.data(), 0, result.size() * sizeof(T));
    reduce(data_type_of<T>(), op, to, from, values.size());
    for (auto& result : results) {
      ASSERT_EQ(std::memcmp(result.data(), values.data(), values.size() * sizeof(T)), 0);
    }
  }
}

template <Element T>
std::vector<T> reduced(InstructionSet set, ReduceOp op, const std::vector<std::vector<T>>& inputs,
                       int divisor = 1) {
  std::vector<const std::byte*> from;
  for (const auto& input : inputs) from.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> result(inputs[0].size());
  const std::array to = {reinterpret_cast<std::byte*>(result.data())};
  reduce_with(set, data_type_of<T>(), op, to, from, result.size(), divisor);
  return result;
}

std::vector<std::uint8_t> numbers(std::size_t bytes) {
  std::vector<std::uint8_t> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + 1);
  return result;
}

// Data would be lost at the ends of a copy, or overwritten beside it.
TEST(CopyBytes, CopiesAllBytesAndNoOthers) {
  const std::vector<std::uint8_t> from = numbers(9'000);
  for (const InstructionSet set : instruction_sets()) {
    for (const std::size_t bytes : {64, 65, 127, 128, 129, 200, 255, 256, 320, 4'096, 8'001}) {
      for (const std::size_t shift : {0, 1, 16, 31, 32, 63}) {
        std::vector<std::uint8_t> to(bytes + 200);
        std::vector<std::uint8_t> expected(to);
        std::copy_n(from.begin() + 3, bytes, expected.begin() + static_cast<std::ptrdiff_t>(shift));
        copy_bytes_with(set, to.data() + shift, from.data() + 3, bytes);
        ASSERT_EQ(to, expected) << to_string(set) << ", " << bytes << " bytes from " << shift;
      }
    }
  }
}

// The same, by copies that depend on the sizes and on the places in the pages.
TEST(CopyBytes, CopiesAllBytesFromAnyPlace) {
  constexpr std::size_t page = 4'096;
  const std::vector<std::uint8_t> from = numbers(50'000);
  for (const std::size_t bytes : {0, 1, 100, 2'047, 2'048, 2'049, 4'096, 8'001, 32'768, 40'001}) {
    for (const std::size_t apart : {0, 1, 64, 511, 512, 2'048, 3'584, 4'095}) {
      std::vector<std::uint8_t> to(bytes + 2 * page);
      const auto place =
          reinterpret_cast<std::uintptr_t>(from.data() + 3) - reinterpret_cast<std::uintptr_t>(to.data());
      const std::size_t begin = (place + apart) % page;
      std::vector<std::uint8_t> expected(to);
      std::copy_n(from.begin() + 3, bytes, expected.begin() + static_cast<std::ptrdiff_t>(begin));
      const auto expect_copied = [&](const auto& copy) {
        std::ranges::fill(to, 0);
        copy(to.data() + begin, from.data() + 3, bytes);
        ASSERT_EQ(to, expected) << bytes << " bytes, " << apart << " apart";
      };
      expect_copied([](auto... operands) { copy_bytes(operands...); });
      expect_copied([](auto... operands) { copy_bytes(operands..., CopyBy::vectors); });
      expect_copied([](auto... operands) { copy_to_peer(operands...); });
      expect_copied([](auto... operands) { copy_streaming(operands...); });
    }
  }
}

// The part that is read late would have been overwritten.
TEST(CopyBytes, BuffersMayOverlap) {
  for (const std::size_t bytes : {0, 1, 1'000, 10'000, 9'000'000}) {
    for (const std::ptrdiff_t shift : {-100, -1, 0, 1, 100}) {
      std::vector<std::uint8_t> memory = numbers(bytes + 200);
      const std::vector<std::uint8_t> before = memory;
      copy_bytes(memory.data() + 100 + shift, memory.data() + 100, bytes);
      ASSERT_TRUE(std::equal(memory.begin() + 100 + shift,
                             memory.begin() + 100 + shift + static_cast<std::ptrdiff_t>(bytes),
                             before.begin() + 100))
          << bytes << " bytes by " << shift;
    }
  }
}

// A diverged gradient would be hidden by the others.
TEST(Reduce, NotANumberWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const InstructionSet set : instruction_sets()) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      const auto result = reduced<float>(set, op, {{nan, 1, nan, infinity, 1}, {1, nan, nan, nan, 2}});
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(result[static_cast<std::size_t>(i)])) << i;
      EXPECT_EQ(result[4], op == ReduceOp::min ? 1 : 2);
    }
    EXPECT_TRUE(std::isnan(reduced<float>(set, ReduceOp::sum, {{infinity}, {-infinity}})[0]));
    EXPECT_EQ(reduced<float>(set, ReduceOp::sum, {{infinity}, {1}})[0], infinity);
    // All kinds of bfloat16 NaNs, including those that differ from infinity only by their last bit.
    for (const std::uint16_t bits : {0x7f81, 0x7fff, 0xff81, 0xffff, 0x7fc0}) {
      const auto value = bfloat16::from_bits(bits);
      for (const ReduceOp op : operations) {
        EXPECT_TRUE(is_nan(reduced<bfloat16>(set, op, {{value}, {bfloat16(1)}}, 1)[0])) << bits;
        EXPECT_TRUE(is_nan(reduced<bfloat16>(set, op, {{bfloat16(1)}, {value}}, 1)[0])) << bits;
      }
    }
  }
}

// 16-bit partial sums would lose small gradients: 2048 + 1 + 1 is 2050, not 2048.
TEST(Reduce, SixteenBitFloatsAreRoundedOnce) {
  for (const InstructionSet set : instruction_sets()) {
    const auto half = reduced<float16>(set, ReduceOp::sum, {{float16(2048)}, {float16(1)}, {float16(1)}});
    EXPECT_EQ(static_cast<float>(half[0]), 2050);
    const auto brain = reduced<bfloat16>(set, ReduceOp::sum, {{bfloat16(256)}, {bfloat16(1)}, {bfloat16(1)}});
    EXPECT_EQ(static_cast<float>(brain[0]), 258);
    // The sum exceeds f16, the mean does not.
    const auto mean = reduced<float16>(set, ReduceOp::avg, {{float16(60000)}, {float16(60000)}}, 2);
    EXPECT_EQ(static_cast<float>(mean[0]), 60000);
    const auto sum =
        reduced<float16>(set, ReduceOp::sum, {{float16(60000)}, {float16(-60000)}, {float16(1)}});
    EXPECT_EQ(static_cast<float>(sum[0]), 1);
  }
}

TEST(Reduce, IntegersWrapAround) {
  constexpr auto least = std::numeric_limits<std::int32_t>::min();
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  for (const InstructionSet set : instruction_sets()) {
    EXPECT_EQ(reduced<std::uint8_t>(set, ReduceOp::sum, {{250}, {10}})[0], 4);
    EXPECT_EQ(reduced<std::int32_t>(set, ReduceOp::sum, {{most}, {1}})[0], least);
    EXPECT_EQ(reduced<std::int64_t>(set, ReduceOp::prod, {{std::int64_t{1} << 62}, {4}})[0], 0);
  }
}

// Means of integers would differ from what the README says, and between machines.
TEST(Reduce, AverageOfIntegersTruncatesTowardsZero) {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
  std::mt19937_64 random(3);
  std::vector<std::int32_t> words = {std::numeric_limits<std::int32_t>::min(),
                                     std::numeric_limits<std::int32_t>::max(), -1, 0, 1};
  std::vector<std::int64_t> longs = {std::numeric_limits<std::int64_t>::min(),
                                     std::numeric_limits<std::int64_t>::min() + 1,
                                     std::numeric_limits<std::int64_t>::max(),
                                     -1,
                                     0,
                                     1};
  std::vector<int> divisors;
  for (int divisor = 2; divisor <= 300; ++divisor) divisors.push_back(divisor);
  for (const int shift : {10, 16, 24, 30}) {
    for (const int more : {-1, 0, 1}) divisors.push_back((1 << shift) + more);
  }
  divisors.push_back(std::numeric_limits<int>::max());
  for (const int divisor : divisors) {  // values: multiples of the divisor and their neighbours
    for (const int more : {-1, 0, 1}) {
      const auto factor = static_cast<std::int64_t>(random());
      longs.push_back(factor / divisor * divisor + more);
      words.push_back(static_cast<std::int32_t>(factor % (std::int64_t{1} << 30)) / divisor * divisor + more);
    }
  }
  for (const InstructionSet set : instruction_sets()) {
    for (const int divisor : divisors) {
      SCOPED_TRACE(fmt::format("{} / {}", to_string(set), divisor));
      const auto check = [&](const auto& values) {
        const std::vector inputs(1, values);
        return reduced(set, ReduceOp::avg, inputs, divisor) == reference(ReduceOp::avg, inputs, divisor);
      };
      ASSERT_TRUE(check(bytes) && check(words) && check(longs));
    }
  }
}

template <typename T>
class NarrowFloat : public testing::Test {};
using NarrowTypes = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(NarrowFloat, NarrowTypes, TypeName);

// Conversions to f32 and back would change some number. Covers scalar conversions and all instruction sets.
TYPED_TEST(NarrowFloat, EveryNumberIsKept) {
  using T = TypeParam;
  std::vector<T> all;
  for (int bits = 0; bits < 65'536; ++bits) all.push_back(T::from_bits(static_cast<std::uint16_t>(bits)));
  for (const T value : all) {
    const auto wide = static_cast<float>(value);
    const double expected = format_of<T>().value(value.bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide) && is_nan(T(wide))) << value.bits;
      continue;
    }
    ASSERT_EQ(wide, expected) << value.bits;
    ASSERT_EQ(T(wide).bits, value.bits);
  }
  const std::vector<T> ones(all.size(), T(1));
  for (const InstructionSet set : instruction_sets()) {
    const auto same = reduced<T>(set, ReduceOp::prod, {all, ones});
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(is_same(same[i], all[i])) << to_string(set) << " " << all[i].bits;
    }
  }
}

// Rounding errors would have a bias.
TYPED_TEST(NarrowFloat, RoundsToNearestEven) {
  using T = TypeParam;
  const auto check = [](float value) {
    if (std::isnan(value)) return is_nan(T(value));
    return T(value).bits == format_of<T>().bits(value);
  };
  for (int bits = 0; bits < 0x7fff; ++bits) {
    const auto low = static_cast<float>(T::from_bits(static_cast<std::uint16_t>(bits)));
    const auto high = static_cast<float>(T::from_bits(static_cast<std::uint16_t>(bits + 1)));
    if (!std::isfinite(high)) break;
    const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, high)}) {
      ASSERT_TRUE(check(value) && check(-value)) << value;
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = from_bits<float>(random());
    ASSERT_TRUE(check(value)) << value;
  }
  for (const float value :
       {65504.0F, 65519.99F, 65520.0F, 65536.0F, std::numeric_limits<float>::max(),
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min()}) {
    ASSERT_TRUE(check(value) && check(-value)) << value;
  }
}

// Kernels would round differently from scalar code. Covers all pairs of a set of difficult numbers.
TYPED_TEST(NarrowFloat, KernelsRoundToNearestEven) {
  using T = TypeParam;
  std::mt19937_64 random(2);
  std::vector<std::vector<T>> inputs(2);
  for (int i = 0; i < 300'000; ++i) {
    const auto bits = static_cast<std::uint16_t>(random());
    const auto near = static_cast<std::uint16_t>(bits ^ (random() % 0x2000));  // of a similar size
    inputs[0].push_back(T::from_bits(bits));
    inputs[1].push_back(T::from_bits(near));
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
    const auto expected = reference(op, inputs, 1);
    for (const InstructionSet set : instruction_sets()) {
      const auto found = reduced(set, op, inputs);
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_TRUE(is_same(found[i], expected[i]))
            << to_string(set) << " " << to_string(op) << " " << inputs[0][i].bits << " " << inputs[1][i].bits;
      }
    }
  }
}

}  // namespace
}  // namespace ddl::collectives
