// The kernels of reproducible reductions for different instruction sets, against each other. If they
// differed, a job on machines of two kinds would end with ranks that have different bits.

#include "collectives/reproducible/exact_kernels.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {
namespace {

struct Set {
  InstructionSet set;
  const ExactKernels* kernels;
};

/// Those that this machine has, but the baseline.
std::vector<Set> other_sets() {
  std::vector<Set> sets;
#if defined(__x86_64__)
  if (native_instruction_set() >= InstructionSet::avx2)
    sets.push_back({InstructionSet::avx2, &avx2_exact_kernels()});
  if (native_instruction_set() >= InstructionSet::avx512) {
    sets.push_back({InstructionSet::avx512, &avx512_exact_kernels()});
  }
#endif
  return sets;
}

constexpr std::array<std::size_t, ExactKernels::types> element_bytes{4, 8, 2, 2};
constexpr std::array<const char*, ExactKernels::types> type_names{"f32", "f64", "f16", "bf16"};
constexpr std::size_t count = 20'003;

using Bytes = std::vector<std::byte>;

/// Every pattern of bits is a float: NaN, infinities, denormals, all exponents.
Bytes patterns(std::size_t type, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * element_bytes[type]);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Some scales are below the elements', as no reduction would have them, some far above.
Bytes scales_for(const ExactKernels& kernels, std::size_t type, Bytes& input) {
  Bytes scales(count * 4);
  kernels.scale[type]({input.data(), scales.data(), nullptr, count, 0});
  return scales;
}

TEST(ExactKernels, AllInstructionSetsGiveTheSameBits) {
  const ExactKernels& baseline = baseline_exact_kernels();
  if (other_sets().empty()) GTEST_SKIP() << "this machine has no instruction set but the baseline";
  for (const Set& set : other_sets()) {
    for (std::size_t type = 0; type < ExactKernels::types; ++type) {
      SCOPED_TRACE(std::string(to_string(set.set)) + ", " + type_names[type]);
      Bytes input = patterns(type, static_cast<unsigned>(type) + 1);
      const Bytes own = scales_for(baseline, type, input);
      EXPECT_EQ(own, scales_for(*set.kernels, type, input));
      // The greatest scales of this rank and another one's.
      Bytes others_input = patterns(type, 99);
      const Bytes others = scales_for(baseline, type, others_input);
      const std::size_t scale_bytes = type == 1 ? 4 : 1;
      Bytes scales = own;
      if (scale_bytes == 1) {
        for (std::size_t i = 0; i < count; ++i) scales[i] = std::max(own[i], others[i]);
      } else {
        for (std::size_t i = 0; i < count; ++i) {
          std::int32_t a = 0;
          std::int32_t b = 0;
          std::memcpy(&a, &own[4 * i], 4);
          std::memcpy(&b, &others[4 * i], 4);
          a = std::max(a, b);
          std::memcpy(&scales[4 * i], &a, 4);
        }
      }
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
        compare("encode", baseline.encode[type], set.kernels->encode[type], bits);
      }
      for (const int bits : {29, 26, 18}) {
        compare("encode_short", baseline.encode_short[type], set.kernels->encode_short[type], bits);
      }
      compare("keys_for_min", baseline.keys_for_min[type], set.kernels->keys_for_min[type], 0);
      compare("keys_for_max", baseline.keys_for_max[type], set.kernels->keys_for_max[type], 0);
    }
  }
}

}  // namespace
}  // namespace ddl::collectives
