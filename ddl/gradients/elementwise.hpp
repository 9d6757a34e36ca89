#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "collectives/kernels/reduce.hpp"
#include "ddl/elements.hpp"

/// Passes over gradients. Each reads and writes every element once and is limited by memory bandwidth. All
/// instruction sets give the same bits, except in the payload of NaNs.
namespace ddl::elementwise {

struct Kernels;
/// The kernels for machines with instruction set `set`.
const Kernels& kernels_of(collectives::InstructionSet set) noexcept;

/// Calls `pass(at, block)` for consecutive elements [at, at + block.size()) of `values`, which are f32 or 16
/// bits wide; the block holds them as f32, may be written to, and fits the L1 cache.
template <typename Pass>
void in_blocks(ConstElements values, const Pass& pass) noexcept {
  std::array<float, 2048> memory;
  const auto* const bytes = static_cast<const std::byte*>(values.data());
  for (std::size_t at = 0; at < values.size(); at += memory.size()) {
    const std::span<float> block = std::span(memory).first(std::min(memory.size(), values.size() - at));
    if (values.type() == DataType::f32) {
      std::copy_n(static_cast<const float*>(values.data()) + at, block.size(), block.begin());
    } else {
      collectives::widen(values.type(), bytes + 2 * at, block);
    }
    pass(at, block);
  }
}

/// target[i] = source[i] * factor, rounded to the target's type. Both have the same type, f64, f32, f16 or
/// bf16, or one is f32 and the other f16 or bf16. They must not overlap, unless they are the same. A result
/// in f32 is that of double precision rounded once, except for about one value in a million; so a mean of
/// integers that is an integer is exact. Returns false if a 16-bit target then holds a value that is not
/// finite.
bool scale_into(Elements target, ConstElements source, double factor) noexcept;
/// values[i] *= factor; returns the same.
inline bool scale(Elements values, double factor) noexcept { return scale_into(values, values, factor); }
/// target[i] += source[i] * factor. The target is f32 or f64; the source has the same type or, for an f32
/// target, f16 or bf16. They must not overlap.
void add_scaled(Elements target, ConstElements source, double factor) noexcept;
/// Sum of the squares of values, within 1e-6 of itself, in an order that depends only on the values. Squares
/// of f32 and narrower values are added up in float, 16 at a time, and then in double; all in double if they
/// exceed the range of float.
double sum_of_squares(ConstElements values) noexcept;
/// Returns the `sum_of_squares`, and then does `scale`, in one pass, for f32 or f64.
double square_and_scale(Elements values, double factor) noexcept;

}  // namespace ddl::elementwise
