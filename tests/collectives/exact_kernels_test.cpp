// The kernels of reproducible reductions: all instruction sets against each other and against the devices'
// code. Otherwise ranks of a job on different kinds of machines would get different bits.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/exact_decoding.hpp"
#include "collectives/kernels/kernel_table.hpp"
#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {
namespace {

/// The instruction sets of this machine except the baseline.
std::vector<InstructionSet> other_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (native_instruction_set() >= set) sets.push_back(set);
  }
  return sets;
}

constexpr std::array types{DataType::f32, DataType::f64, DataType::f16, DataType::bf16};

const ExactKernels& kernels_for(InstructionSet set, DataType type) {
  return kernels_of(set).exact[static_cast<std::size_t>(type)];
}

constexpr std::size_t count = 20'003;

using Bytes = std::vector<std::byte>;

/// Random bits, which are floats of every kind: NaN, infinities, denormals, all exponents.
Bytes patterns(DataType type, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * size_of(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Scales, of which some are below the elements' own, which no reduction has, and some far above.
Bytes scales_for(const ExactKernels& kernels, const Bytes& input) {
  Bytes scales(count * 4);
  kernels.scale({input.data(), scales.data(), nullptr, count, 0});
  return scales;
}

/// The maximum of this rank's scales and another rank's.
Bytes with_another_ranks(const Bytes& own, DataType type) {
  const Bytes others = scales_for(kernels_for(InstructionSet::baseline, type), patterns(type, 99));
  Bytes scales = own;
  for (std::size_t i = 0; i < count; ++i) {
    if (type != DataType::f64) {
      scales[i] = std::max(own[i], others[i]);
      continue;
    }
    std::int32_t a = 0;
    std::int32_t b = 0;
    std::memcpy(&a, &own[4 * i], 4);
    std::memcpy(&b, &others[4 * i], 4);
    a = std::max(a, b);
    std::memcpy(&scales[4 * i], &a, 4);
  }
  return scales;
}

TEST(ExactKernels, AllInstructionSetsGiveTheSameBits) {
  if (other_sets().empty()) GTEST_SKIP() << "this machine has no instruction set but the baseline";
  for (const InstructionSet set : other_sets()) {
    for (const DataType type : types) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(set), to_string(type)));
      const ExactKernels& baseline = kernels_for(InstructionSet::baseline, type);
      const ExactKernels& kernels = kernels_for(set, type);
      const Bytes input = patterns(type, static_cast<unsigned>(type) + 1);
      const Bytes own = scales_for(baseline, input);
      EXPECT_EQ(own, scales_for(kernels, input));
      Bytes scales = with_another_ranks(own, type);
      const auto compare = [&](const char* what, ExactKernel one, ExactKernel other, int bits) {
        ASSERT_EQ(one == nullptr, other == nullptr) << what;
        if (one == nullptr) return;
        Bytes first(count * 16);
        Bytes second(count * 16);
        one({input.data(), scales.data(), first.data(), count, bits});
        other({input.data(), scales.data(), second.data(), count, bits});
        EXPECT_EQ(first, second) << what << ", " << bits << " bits";
      };
      for (const int bits : {50, 46, 40}) {
        compare("encode", baseline.encode, kernels.encode, bits);
      }
      for (const int bits : {29, 26, 18}) {
        compare("encode_short", baseline.encode_short, kernels.encode_short, bits);
      }
      compare("keys_for_min", baseline.keys_for_min, kernels.keys_for_min, 0);
      compare("keys_for_max", baseline.keys_for_max, kernels.keys_for_max, 0);
    }
  }
}

template <typename F, typename Limb>
void expect_elements_as(ExactKernel kernel, const Bytes& input, Bytes scales, int bits) {
  Bytes expected(count * 16);
  kernel({input.data(), scales.data(), expected.data(), count, bits});
  for (std::size_t i = 0; i < count; ++i) {
    typename F::Scale scale;
    std::memcpy(&scale, scales.data() + i * sizeof scale, sizeof scale);
    const auto element = Parts<F>::load(input.data(), i);
    Limb limbs[F::limbs];
    scale == F::special ? encode_special<F>(element, limbs) : encode_element<F>(element, scale, bits, limbs);
    ASSERT_EQ(std::memcmp(limbs, expected.data() + i * sizeof limbs, sizeof limbs), 0)
        << "element " << i << ", " << bits << " bits";
  }
}

template <typename F>
void expect_keys_as(const ExactKernels& kernels, const Bytes& input) {
  Bytes least(count * 8);
  Bytes greatest(count * 8);
  kernels.keys_for_min({input.data(), nullptr, least.data(), count, 0});
  kernels.keys_for_max({input.data(), nullptr, greatest.data(), count, 0});
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = Parts<F>::load(input.data(), i);
    const auto low = key_of<F, false>(element);
    const auto high = key_of<F, true>(element);
    ASSERT_EQ(std::memcmp(&low, least.data() + i * sizeof low, sizeof low), 0) << "element " << i;
    ASSERT_EQ(std::memcmp(&high, greatest.data() + i * sizeof high, sizeof high), 0) << "element " << i;
  }
}

/// Results of a job on devices and on hosts would differ. Devices encode elements one by one.
TEST(ExactKernels, ElementsOneByOneGiveTheSameBits) {
  std::vector<InstructionSet> sets = other_sets();
  sets.push_back(InstructionSet::baseline);
  for (const InstructionSet set : sets) {
    const auto check = [&]<typename F>(DataType type, F) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(set), to_string(type)));
      const ExactKernels& all = kernels_for(set, type);
      const Bytes input = patterns(type, static_cast<unsigned>(type) + 1);
      const Bytes scales = with_another_ranks(scales_for(all, input), type);
      for (const int bits : {50, 46, 31}) {
        expect_elements_as<F, std::int64_t>(all.encode, input, scales, bits);
      }
      if constexpr (sizeof(typename F::Bits) == 2) {
        for (const int bits : {29, 18}) {
          expect_elements_as<F, std::int32_t>(all.encode_short, input, scales, bits);
        }
      }
      expect_keys_as<F>(all, input);
    };
    check(DataType::f32, F32Format());
    check(DataType::f64, F64Format());
    check(DataType::f16, F16Format());
    check(DataType::bf16, BF16Format());
  }
}

/// Compares with the compiler's 128-bit arithmetic, which devices may lack.
TEST(ExactKernels, SumsOfTwoLimbsAreRoundedAsWholeNumbers) {
  __extension__ using Wide = __int128;
  std::mt19937_64 random(7);
  std::size_t denormal = 0;
  for (int i = 0; i < 500'000; ++i) {
    const int bits = 31 + static_cast<int>(random() % 20);
    std::int64_t limbs[2];
    for (std::int64_t& limb : limbs) {
      limb = static_cast<std::int64_t>(random()) >> (1 + random() % 63);
      if (random() % 16 == 0) limb = static_cast<std::int64_t>(random() % 5) - 2;
      if (random() % 8 == 0) limb = (limb & ~0xff'ffffLL) | static_cast<std::int64_t>(random() % 3);
    }
    int scale = static_cast<int>(random() % F64Format::special);
    if (i % 3 == 0) scale = static_cast<int>(random() % 120);         // small results
    if (i % 5 == 0) scale = 1900 + static_cast<int>(random() % 147);  // large results
    const double divisor = i % 3 == 1 ? static_cast<double>(1 + random() % 5000) : 1;
    const Wide sum = limbs[0] * (Wide{1} << bits) + limbs[1];
    const int unit = std::max(scale, 1) - F64Format::bias + 1 - 2 * bits;
    const double expected = std::ldexp(static_cast<double>(sum) / divisor, unit);
    denormal += std::fpclassify(expected) == FP_SUBNORMAL ? 1 : 0;
    ASSERT_EQ(decode_sum<F64Format>(scale, limbs, bits, divisor), std::bit_cast<std::uint64_t>(expected))
        << limbs[0] << ", " << limbs[1] << ", " << bits << " bits, scale " << scale << " / " << divisor;
  }
  EXPECT_GT(denormal, 10'000U);
}

}  // namespace
}  // namespace ddl::collectives
