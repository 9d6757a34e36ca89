// The loops. See the comment in kernel_vectors.hpp.
#pragma once

#include "collectives/kernels/exact_format.hpp"
#include "collectives/kernels/kernel_operations.hpp"
#include "collectives/kernels/kernel_table.hpp"
#include "collectives/kernels/wire_loops.hpp"

namespace ddl::collectives {

// Loops for the compiler to vectorise, compiled once per instruction set. Everything is in an unnamed
// namespace and calls no code from elsewhere: otherwise the linker could keep a copy that was compiled for
// another machine.

namespace {

template <typename F>
void scale(const ExactOperands& o) noexcept {
  using Scale = typename F::Scale;
  auto* const scales = reinterpret_cast<Scale*>(o.scales);
  for (std::size_t i = 0; i < o.count; ++i) {
    scales[i] = static_cast<Scale>(Parts<F>::exponent(Parts<F>::load(o.input, i)));
  }
}

template <typename F, typename Limb, bool has_specials>
[[gnu::always_inline]] inline void encode_block(const ExactOperands& o, std::size_t begin, std::size_t end) {
  const auto* const scales = reinterpret_cast<const typename F::Scale*>(o.scales);
  auto* const limbs = reinterpret_cast<Limb*>(o.limbs);
  const int bits = o.bits;
  for (std::size_t i = begin; i < end; ++i) {
    const auto element = Parts<F>::load(o.input, i);
    const int scale = scales[i];
    if (has_specials && scale == F::special) {
      encode_special<F>(element, limbs + i * F::limbs);
    } else {
      encode_element<F>(element, scale, bits, limbs + i * F::limbs);
    }
  }
}

template <typename F, typename Limb>
void encode(const ExactOperands& o) noexcept {
  constexpr std::size_t block = 512;
  const auto* const scales = reinterpret_cast<const typename F::Scale*>(o.scales);
  for (std::size_t begin = 0; begin < o.count; begin += block) {
    const std::size_t end = o.count - begin < block ? o.count : begin + block;
    int specials = 0;
    for (std::size_t i = begin; i < end; ++i) specials |= static_cast<int>(scales[i] == F::special);
    if (specials == 0) {
      encode_block<F, Limb, false>(o, begin, end);
    } else {
      encode_block<F, Limb, true>(o, begin, end);
    }
  }
}

template <typename F, bool greatest>
void keys(const ExactOperands& o) noexcept {
  auto* const limbs = reinterpret_cast<typename F::Key*>(o.limbs);
  for (std::size_t i = 0; i < o.count; ++i) limbs[i] = key_of<F, greatest>(Parts<F>::load(o.input, i));
}

template <typename F>
constexpr ExactKernels exact_kernels() {
  ExactKernels all{scale<F>, encode<F, std::int64_t>, nullptr, keys<F, false>, keys<F, true>};
  if constexpr (sizeof(typename F::Bits) == 2) all.encode_short = encode<F, std::int32_t>;
  return all;
}

}  // namespace

namespace {

/// `input_count` and `target_count`: 0 if known only at run time. `streaming`: no target is an input, and all
/// targets are the same whole number of elements away from their next multiple of `width`.
template <typename Element, typename Op, std::size_t input_count, std::size_t target_count, bool streaming>
class Loop {
  using T = typename Element::Number;
  using Value = typename Element::Value;

 public:
  [[gnu::always_inline]] explicit Loop(const Operands& operands)
      : operands_(operands), last_(operands.divisor) {
    for (std::size_t i = 0; i < input_count; ++i) inputs_[i] = operands.inputs[i];
    for (std::size_t i = 0; i < target_count; ++i) targets_[i] = operands.targets[i];
  }

  /// Needs at least `width` bytes. The last vector is computed first and written last, because it overlaps
  /// others and targets may be inputs.
  [[gnu::always_inline]] void run() const {
    const std::size_t bytes = operands_.bytes;
    Value tail[1];
    compute(tail, bytes - width);
    std::size_t at = 0;
    if constexpr (streaming) {
      Value head[1];
      compute(head, 0);
      write<false>(head, 0);
      at = width - reinterpret_cast<std::uintptr_t>(operands_.targets[0]) % width;
    }
    for (; at + steps * width <= bytes; at += steps * width) {
      Value values[steps];
      compute(values, at);
      write<streaming>(values, at);
    }
    for (; at + width <= bytes; at += width) {
      Value values[1];
      compute(values, at);
      write<streaming>(values, at);
    }
    write<false>(tail, bytes - width);
    if constexpr (streaming) finish_streaming();
  }

  /// Processes one operand after the other, 2 KiB at a time: many operands at once may conflict in the
  /// cache's sets, and are more streams than processors prefetch.
  [[gnu::always_inline]] void run_by_blocks() const {
    const std::size_t bytes = operands_.bytes;
    Value tail[1];
    compute(tail, bytes - width);
    Value sums[block / width];
    for (std::size_t at = 0; at + width <= bytes;) {
      const std::size_t left = (bytes - at) / width;
      const std::size_t n = left < block / width ? left : block / width;
      const std::byte* from = input(0) + at;
      for (std::size_t s = 0; s < n; ++s) sums[s] = Element::get(from + s * width);
      for (std::size_t i = 1; i < inputs(); ++i) {
        from = input(i) + at;
#pragma GCC unroll 4
        for (std::size_t s = 0; s < n; ++s) sums[s] = combine<Op, T>(sums[s], Element::get(from + s * width));
      }
      for (std::size_t s = 0; s < n; ++s) last_(sums[s]);
      for (std::size_t i = 0; i < targets(); ++i) {
        std::byte* to = target(i) + at;
#pragma GCC unroll 4
        for (std::size_t s = 0; s < n; ++s) Element::template put<false>(to + s * width, sums[s]);
      }
      at += n * width;
    }
    write<false>(tail, bytes - width);
  }

 private:
  static constexpr std::size_t block = 2048;
  static constexpr std::size_t steps = Element::steps;

  [[gnu::always_inline]] std::size_t inputs() const {
    return input_count > 0 ? input_count : operands_.input_count;
  }
  [[gnu::always_inline]] std::size_t targets() const {
    return target_count > 0 ? target_count : operands_.target_count;
  }
  [[gnu::always_inline]] const std::byte* input(std::size_t i) const {
    return input_count > 0 ? inputs_[i] : operands_.inputs[i];
  }
  [[gnu::always_inline]] std::byte* target(std::size_t i) const {
    return target_count > 0 ? targets_[i] : operands_.targets[i];
  }

  template <std::size_t n>
  [[gnu::always_inline]] void compute(Value (&values)[n], std::size_t at) const {
    const std::byte* from = input(0) + at;
#pragma GCC unroll 8
    for (std::size_t s = 0; s < n; ++s) values[s] = Element::get(from + s * width);
    for (std::size_t i = 1; i < inputs(); ++i) {
      from = input(i) + at;
#pragma GCC unroll 8
      for (std::size_t s = 0; s < n; ++s) {
        values[s] = combine<Op, T>(values[s], Element::get(from + s * width));
      }
    }
#pragma GCC unroll 8
    for (std::size_t s = 0; s < n; ++s) last_(values[s]);
  }

  template <bool past_caches, std::size_t n>
  [[gnu::always_inline]] void write(const Value (&values)[n], std::size_t at) const {
    for (std::size_t i = 0; i < targets(); ++i) {
      std::byte* to = target(i) + at;
#pragma GCC unroll 8
      for (std::size_t s = 0; s < n; ++s) Element::template put<past_caches>(to + s * width, values[s]);
    }
  }

  const Operands& operands_;
  const std::byte* inputs_[input_count + 1];
  std::byte* targets_[target_count + 1];
  typename Op::template Last<T> last_;
};

#if defined(DDL_KERNELS_AVX512)

[[gnu::always_inline]] inline __mmask64 first_bytes(std::size_t length) {
  return (__mmask64{1} << length) - 1;
}

/// Loads fewer than `width` bytes into a buffer of `width`, and zeros after them.
[[gnu::always_inline]] inline void load_short(std::byte* buffer, const std::byte* from, std::size_t length) {
  store(buffer, _mm512_maskz_loadu_epi8(first_bytes(length), from));
}

/// Stores the first `length` bytes of a buffer of `width`.
[[gnu::always_inline]] inline void store_short(std::byte* to, const std::byte* buffer, std::size_t length) {
  _mm512_mask_storeu_epi8(to, first_bytes(length), load<__m512i>(buffer));
}

#else

template <std::size_t bytes>
[[gnu::always_inline]] inline void copy_piece(std::byte* to, const std::byte* from, std::size_t length,
                                              std::size_t& at) {
  if constexpr (bytes < width) {
    if ((length & bytes) == 0) return;
    __builtin_memcpy(to + at, from + at, bytes);
    at += bytes;
  }
}

/// Stores the first `length` bytes of a buffer of `width`.
[[gnu::always_inline]] inline void store_short(std::byte* to, const std::byte* buffer, std::size_t length) {
  std::size_t at = 0;
  copy_piece<16>(to, buffer, length, at);
  copy_piece<8>(to, buffer, length, at);
  copy_piece<4>(to, buffer, length, at);
  copy_piece<2>(to, buffer, length, at);
  copy_piece<1>(to, buffer, length, at);
}

/// Loads fewer than `width` bytes into a buffer of `width`.
[[gnu::always_inline]] inline void load_short(std::byte* buffer, const std::byte* from, std::size_t length) {
  store_short(buffer, from, length);
}

#endif

/// Reduces fewer than `width` bytes.
template <typename Element, typename Op>
void reduce_short(const Operands& operands) noexcept {
  using T = typename Element::Number;
  std::byte buffer[width] = {};
  load_short(buffer, operands.inputs[0], operands.bytes);
  auto value = Element::get(buffer);
  for (std::size_t i = 1; i < operands.input_count; ++i) {
    load_short(buffer, operands.inputs[i], operands.bytes);
    value = combine<Op, T>(value, Element::get(buffer));
  }
  const typename Op::template Last<T> last(operands.divisor);
  last(value);
  Element::template put<false>(buffer, value);
  for (std::size_t i = 0; i < operands.target_count; ++i) {
    store_short(operands.targets[i], buffer, operands.bytes);
  }
}

template <typename Element, typename Op>
void reduce_elements(const Operands& operands) noexcept {
  if (operands.bytes < width) return reduce_short<Element, Op>(operands);
  if (operands.input_count + operands.target_count > 48) {
    return Loop<Element, Op, 0, 0, false>(operands).run_by_blocks();
  }
  if (operands.streaming) return Loop<Element, Op, 0, 0, true>(operands).run();
  if (operands.input_count == 2) {
    if (operands.target_count == 1) return Loop<Element, Op, 2, 1, false>(operands).run();
    if (operands.target_count == 2) return Loop<Element, Op, 2, 2, false>(operands).run();
  }
  Loop<Element, Op, 0, 0, false>(operands).run();
}

/// Needs at least `width` bytes. Stores are aligned, but for those of the first and the last vector, which
/// overlap others.
template <bool streaming>
void copy_vectors(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  using Element = Plain<std::uint8_t>;
  constexpr std::size_t steps = 4;
  const auto head = Element::get(from);
  const auto tail = Element::get(from + bytes - width);
  std::size_t at = width - reinterpret_cast<std::uintptr_t>(to) % width;
  for (; at + steps * width <= bytes; at += steps * width) {
    Element::Value values[steps];
#pragma GCC unroll 4
    for (std::size_t s = 0; s < steps; ++s) values[s] = Element::get(from + at + s * width);
#pragma GCC unroll 4
    for (std::size_t s = 0; s < steps; ++s) Element::put<streaming>(to + at + s * width, values[s]);
  }
  for (; at + width <= bytes; at += width) Element::put<streaming>(to + at, Element::get(from + at));
  Element::put<false>(to, head);
  Element::put<false>(to + bytes - width, tail);
  if constexpr (streaming) finish_streaming();
}

template <typename Element>
constexpr void fill(Kernel (&row)[KernelTable::ops]) {
  row[0] = reduce_elements<Element, Sum>;
  row[1] = reduce_elements<Element, Average>;
  row[2] = reduce_elements<Element, Minimum>;
  row[3] = reduce_elements<Element, Maximum>;
  row[4] = reduce_elements<Element, Product>;
}

constexpr KernelTable make_kernels() {
  KernelTable table{};
  fill<Plain<std::uint8_t>>(table.kernels[0]);
  fill<Plain<std::int32_t>>(table.kernels[1]);
  fill<Plain<std::int64_t>>(table.kernels[2]);
  fill<Plain<float>>(table.kernels[3]);
  fill<Plain<double>>(table.kernels[4]);
  fill<Half>(table.kernels[5]);
  fill<BrainFloat>(table.kernels[6]);
  table.exact[3] = exact_kernels<F32Format>();
  table.exact[4] = exact_kernels<F64Format>();
  table.exact[5] = exact_kernels<F16Format>();
  table.exact[6] = exact_kernels<BF16Format>();
  table.wire[5] = wire_kernels<HalfWire>();
  table.wire[6] = wire_kernels<BrainWire>();
  table.copy = copy_vectors<false>;
  table.copy_streaming = copy_vectors<true>;
  return table;
}

constexpr KernelTable kernels = make_kernels();

}  // namespace

}  // namespace ddl::collectives
