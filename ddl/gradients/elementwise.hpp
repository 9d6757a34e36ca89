#pragma once

#include "collectives/kernels/reduce.hpp"
#include "ddl/elements.hpp"

/// Passes over gradients. Each reads and writes every element once and is limited by memory bandwidth. All
/// instruction sets give the same bits, except in the payload of NaNs.
namespace ddl::elementwise {

struct Kernels;
/// The kernels for machines with instruction set `set`.
const Kernels& kernels_of(collectives::InstructionSet set) noexcept;

/// target[i] = source[i] * factor, rounded to the target's type. Both are f64, both are f32, or one is f32
/// and the other f16 or bf16. They must not overlap, unless they are the same f32 or f64. A result in f32 is
/// that of double precision rounded once, except for about one value in a million; so a mean of integers that
/// is an integer is exact. Returns false if a 16-bit target then holds a value that is not finite.
bool scale_into(Elements target, ConstElements source, double factor) noexcept;
/// values[i] *= factor, for f32 or f64.
inline void scale(Elements values, double factor) noexcept { scale_into(values, values, factor); }
/// target[i] += source[i] * factor. The target is f32 or f64; the source has the same type or, for an f32
/// target, f16 or bf16. They must not overlap.
void add_scaled(Elements target, ConstElements source, double factor) noexcept;
/// Sum of the squares of f32 or f64 values, within 1e-6 of itself, in an order that depends only on the
/// values. f32 squares are added up in float, 16 at a time, and then in double; all in double if they exceed
/// the range of float.
double sum_of_squares(ConstElements values) noexcept;
/// Returns the `sum_of_squares`, and then does `scale`, in one pass.
double square_and_scale(Elements values, double factor) noexcept;

}  // namespace ddl::elementwise
