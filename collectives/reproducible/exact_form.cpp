#include "collectives/reproducible/exact_form.hpp"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collectives/kernels/reduce.hpp"
#include "collectives/reproducible/exact_format.hpp"
#include "collectives/reproducible/exact_kernels.hpp"

namespace ddl::collectives {
namespace {

constexpr int most_bits = 50;  // that one addition of doubles rounds to an integer
constexpr int fewest_short_bits = 18;

int log2_above(int ranks) noexcept { return std::bit_width(static_cast<unsigned>(ranks) - 1); }
int short_bits(int ranks) noexcept { return 30 - log2_above(ranks); }
int long_bits(int ranks) noexcept { return std::min(most_bits, 62 - log2_above(ranks)); }

/// Callers may have denormal numbers flushed, or have another rounding mode.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;
  ~DefaultFloatEnvironment() { std::fesetenv(&callers_); }

 private:
  std::fenv_t callers_;
};

const ExactKernels& kernels() noexcept {
#if defined(DDL_X86_KERNELS)
  switch (native_instruction_set()) {
    case InstructionSet::avx512:
      return avx512_exact_kernels();
    case InstructionSet::avx2:
      return avx2_exact_kernels();
    case InstructionSet::baseline:
      break;
  }
#endif
  return baseline_exact_kernels();
}

std::size_t index_of(DataType type) noexcept {
  switch (type) {
    case DataType::f64:
      return 1;
    case DataType::f16:
      return 2;
    case DataType::bf16:
      return 3;
    default:
      return 0;
  }
}

template <typename F>
struct NumberOf {
  using type = float;
};
template <>
struct NumberOf<F64Format> {
  using type = double;
};
template <>
struct NumberOf<F16Format> {
  using type = float16;
};
template <>
struct NumberOf<BF16Format> {
  using type = bfloat16;
};
template <typename F>
using Number = typename NumberOf<F>::type;

template <typename Function>
void with_format(DataType type, const Function& function) {
  switch (type) {
    case DataType::f64:
      return function(F64Format());
    case DataType::f16:
      return function(F16Format());
    case DataType::bf16:
      return function(BF16Format());
    default:
      return function(F32Format());
  }
}

template <typename F>
typename F::Bits nan_of() noexcept {
  constexpr typename F::Bits one = 1;
  return static_cast<typename F::Bits>(((one << (F::exponent + 1)) - 1) << (F::mantissa - 1));
}
template <typename F>
typename F::Bits infinity_of(bool negative) noexcept {
  constexpr typename F::Bits one = 1;
  const auto sign = static_cast<typename F::Bits>(one << (F::exponent + F::mantissa));
  const auto infinity = static_cast<typename F::Bits>(((one << F::exponent) - 1) << F::mantissa);
  return negative ? static_cast<typename F::Bits>(sign | infinity) : infinity;
}

/// To the nearest number of the type: bits.
template <typename F>
typename F::Bits rounded(double value) noexcept {
  if (std::isnan(value)) return nan_of<F>();
  if constexpr (std::is_same_v<F, F64Format>) {
    return std::bit_cast<std::uint64_t>(value);
  } else if constexpr (std::is_same_v<F, F32Format>) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  } else {
    return Number<F>(static_cast<float>(value)).bits;
  }
}

/// What infinite and NaN elements have left: infinite ones of either sign are counted in one half of the
/// limb, a NaN counts as both.
template <typename F, typename Limb>
typename F::Bits special_result(Limb limb) noexcept {
  constexpr int half = static_cast<int>(sizeof(Limb)) * 4 - 1;
  const bool positive = (limb & ((Limb{1} << half) - 1)) != 0;
  const bool negative = (limb >> half) != 0;
  return positive == negative ? nan_of<F>() : infinity_of<F>(negative);
}

__extension__ using Wide = __int128;

template <typename F, typename Limb>
void decode_sums(const std::byte* scales, const std::byte* limbs, std::byte* output, std::size_t count,
                 int bits, double divisor) noexcept {
  const auto* const scale = reinterpret_cast<const typename F::Scale*>(scales);
  const auto* const limb = reinterpret_cast<const Limb*>(limbs);
  for (std::size_t i = 0; i < count; ++i) {
    typename F::Bits result;
    if (scale[i] == F::special) {
      result = special_result<F>(limb[i * F::limbs]);
    } else {
      const int unit = std::max<int>(scale[i], 1) - F::bias + 1 - bits;  // its power of two
      if constexpr (F::limbs == 1) {
        const double power = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + unit) << 52U);
        result = rounded<F>(static_cast<double>(limb[i]) / divisor * power);
      } else {
        const Wide sum = limb[2 * i] * (Wide{1} << bits) + limb[2 * i + 1];
        result = rounded<F>(std::ldexp(static_cast<double>(sum) / divisor, unit - bits));
      }
    }
    std::memcpy(output + i * sizeof result, &result, sizeof result);
  }
}

template <typename F>
void decode_keys(const std::byte* limbs, std::byte* output, std::size_t count, bool greatest) noexcept {
  using Key = typename F::Key;
  constexpr auto sign = static_cast<typename F::Bits>(typename F::Bits{1} << (F::exponent + F::mantissa));
  const auto* const keys = reinterpret_cast<const Key*>(limbs);
  for (std::size_t i = 0; i < count; ++i) {
    const Key key = keys[i];
    typename F::Bits result;
    if (key == ExactKey<Key>::of_nan(greatest)) {
      result = nan_of<F>();
    } else if (key < 0) {
      result = static_cast<typename F::Bits>(static_cast<typename F::Bits>(~key) | sign);
    } else {
      result = static_cast<typename F::Bits>(key);
    }
    std::memcpy(output + i * sizeof result, &result, sizeof result);
  }
}

}  // namespace

ExactForm::ExactForm(DataType type, ReduceOp op, int ranks) noexcept : type_(type), op_(op), ranks_(ranks) {
  const bool is_short = size_of(type) == 2;
  if (op == ReduceOp::min || op == ReduceOp::max) {
    limbs_ = {type == DataType::f64 ? DataType::i64 : DataType::i32, 1};
    return;
  }
  scales_ = {type == DataType::f64 ? DataType::i32 : DataType::u8, 1};
  if (is_short && short_bits(ranks) >= fewest_short_bits) {
    limbs_ = {DataType::i32, 1};
    bits_ = short_bits(ranks);
  } else {
    limbs_ = {DataType::i64, type == DataType::f64 ? std::size_t{2} : std::size_t{1}};
    bits_ = long_bits(ranks);
  }
}

ReduceOp ExactForm::op() const noexcept { return scales_ ? ReduceOp::sum : op_; }

void ExactForm::write_scales(const std::byte* input, std::byte* scales, std::size_t count) const noexcept {
  kernels().scale[index_of(type_)]({input, scales, nullptr, count, bits_});
}

void ExactForm::encode(const std::byte* input, const std::byte* scales, std::byte* limbs,
                       std::size_t count) const noexcept {
  const DefaultFloatEnvironment environment;
  const ExactKernels& all = kernels();
  const std::size_t type = index_of(type_);
  ExactKernel kernel = all.encode[type];
  if (op_ == ReduceOp::min) kernel = all.keys_for_min[type];
  if (op_ == ReduceOp::max) kernel = all.keys_for_max[type];
  if (scales_ && limbs_.type == DataType::i32) kernel = all.encode_short[type];
  kernel({input, const_cast<std::byte*>(scales), limbs, count, bits_});
}

void ExactForm::decode(const std::byte* scales, const std::byte* limbs, std::byte* output,
                       std::size_t count) const noexcept {
  const DefaultFloatEnvironment environment;
  const double divisor = op_ == ReduceOp::avg ? ranks_ : 1;
  with_format(type_, [&](auto format) {
    using F = decltype(format);
    if (!scales_) {
      decode_keys<F>(limbs, output, count, op_ == ReduceOp::max);
    } else if (limbs_.type == DataType::i32) {
      if constexpr (F::limbs == 1) {
        decode_sums<F, std::int32_t>(scales, limbs, output, count, bits_, divisor);
      }
    } else {
      decode_sums<F, std::int64_t>(scales, limbs, output, count, bits_, divisor);
    }
  });
}

void multiply_in_order(DataType type, const std::byte* first, std::size_t stride, int ranks,
                       std::byte* output, std::size_t count) noexcept {
  const DefaultFloatEnvironment environment;
  with_format(type, [&](auto format) {
    using F = decltype(format);
    using T = Number<F>;
    for (std::size_t i = 0; i < count; ++i) {
      double product = 1;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        T factor;
        std::memcpy(&factor, first + (rank * stride + i) * sizeof(T), sizeof factor);
        if constexpr (sizeof(T) == 2) {
          product *= static_cast<double>(static_cast<float>(factor));
        } else {
          product *= static_cast<double>(factor);
        }
      }
      const auto result = rounded<F>(product);
      std::memcpy(output + i * sizeof result, &result, sizeof result);
    }
  });
}

}  // namespace ddl::collectives
