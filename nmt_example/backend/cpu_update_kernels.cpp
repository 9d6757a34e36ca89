#include <cmath>

#include "nmt_example/backend/cpu_kernels.hpp"
#include "nmt_example/backend/cpu_math.hpp"
#include "nmt_example/backend/update_rules.hpp"

namespace nmt::cpu {
namespace {

struct FloatMath {
  NMT_INLINE static float sqrt(float x) { return std::sqrt(x); }
};

NMT_INLINE double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

template <typename Rule, bool zeroes_gradients>
NMT_INLINE SquareSums update_all(const UpdateTensors& tensors, const UpdateFactors<float>& factors) {
  const UpdateArrays<float> arrays(tensors);
  const UpdateFactors<float> k = factors;
  const std::int64_t count = tensors.values.size();
  double values = 0, measured = 0;
#pragma omp simd reduction(+ : values, measured)
  for (std::int64_t i = 0; i < count; ++i) {
    const UpdateElement<float> e = arrays.update<Rule, FloatMath, zeroes_gradients>(k, i);
    if constexpr (Rule::use.measures) {
      values += square(e.value);
      measured += square(e.measured);
    }
  }
  return {values, measured};
}

}  // namespace

NMT_VECTORIZED SquareSums update(UpdateRule rule, const UpdateTensors& tensors,
                                 const UpdateFactors<float>& factors, bool zero_gradients) {
  SquareSums sums{};
  with_rule(
      rule, [&]<typename Rule>(const Rule&) __attribute__((always_inline)) {
        sums = zero_gradients ? update_all<Rule, true>(tensors, factors)
                              : update_all<Rule, false>(tensors, factors);
      });
  return sums;
}

}  // namespace nmt::cpu
