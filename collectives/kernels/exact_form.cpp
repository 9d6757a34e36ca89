#include "collectives/kernels/exact_form.hpp"

#include <algorithm>
#include <cfenv>
#include <cstring>

#include "collectives/kernels/exact_decoding.hpp"
#include "collectives/kernels/exact_format.hpp"
#include "collectives/kernels/kernel_table.hpp"
#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {
namespace {

constexpr int most_bits = 50;  // limit at which adding a constant to a double still rounds to an integer
constexpr int fewest_short_bits = 18;

int log2_above(int ranks) noexcept { return std::bit_width(static_cast<unsigned>(ranks) - 1); }
int short_bits(int ranks) noexcept { return 30 - log2_above(ranks); }
int long_bits(int ranks) noexcept { return std::min(most_bits, 62 - log2_above(ranks)); }

/// The caller may flush denormal numbers or use another rounding mode.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultFloatEnvironment& operator=(DefaultFloatEnvironment&&) = delete;
  ~DefaultFloatEnvironment() { std::fesetenv(&callers_); }

 private:
  std::fenv_t callers_;
};

const ExactKernels& kernels_for(DataType type) noexcept {
  return kernels_of(native_instruction_set()).exact[static_cast<std::size_t>(type)];
}

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
void store(std::byte* output, std::size_t i, typename F::Bits result) noexcept {
  std::memcpy(output + i * sizeof result, &result, sizeof result);
}

template <typename F, typename Limb>
void decode_sums(const std::byte* scales, const std::byte* limbs, std::byte* output, std::size_t count,
                 int bits, double divisor) noexcept {
  const auto* const scale = reinterpret_cast<const typename F::Scale*>(scales);
  const auto* const limb = reinterpret_cast<const Limb*>(limbs);
  for (std::size_t i = 0; i < count; ++i) {
    store<F>(output, i, decode_sum<F>(scale[i], limb + i * F::limbs, bits, divisor));
  }
}

template <typename F, bool greatest>
void decode_keys(const std::byte* limbs, std::byte* output, std::size_t count) noexcept {
  const auto* const keys = reinterpret_cast<const typename F::Key*>(limbs);
  for (std::size_t i = 0; i < count; ++i) store<F>(output, i, decode_key<F, greatest>(keys[i]));
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
  kernels_for(type_).scale({input, scales, nullptr, count, bits_});
}

void ExactForm::encode(const std::byte* input, const std::byte* scales, std::byte* limbs,
                       std::size_t count) const noexcept {
  const DefaultFloatEnvironment environment;
  const ExactKernels& all = kernels_for(type_);
  ExactKernel kernel = all.encode;
  if (op_ == ReduceOp::min) kernel = all.keys_for_min;
  if (op_ == ReduceOp::max) kernel = all.keys_for_max;
  if (scales_ && limbs_.type == DataType::i32) kernel = all.encode_short;
  kernel({input, const_cast<std::byte*>(scales), limbs, count, bits_});
}

void ExactForm::decode(const std::byte* scales, const std::byte* limbs, std::byte* output,
                       std::size_t count) const noexcept {
  const DefaultFloatEnvironment environment;
  const double divisor = op_ == ReduceOp::avg ? ranks_ : 1;
  with_format(type_, [&](auto format) {
    using F = decltype(format);
    if (!scales_) {
      op_ == ReduceOp::max ? decode_keys<F, true>(limbs, output, count)
                           : decode_keys<F, false>(limbs, output, count);
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
    for (std::size_t i = 0; i < count; ++i) {
      store<F>(output, i, product_of<F>(first, stride, static_cast<std::size_t>(ranks), i));
    }
  });
}

}  // namespace ddl::collectives
