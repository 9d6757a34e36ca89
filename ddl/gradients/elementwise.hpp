#pragma once

#include "collectives/kernels/reduce.hpp"
#include "ddl/elements.hpp"

/// Passes over gradients. Each reads and writes every element once; memory limits them. All instruction sets
/// give the same bits, but for those that a NaN carries.
namespace ddl::elementwise {

struct Kernels;
/// Those for machines that have an instruction set.
const Kernels& kernels_of(collectives::InstructionSet set) noexcept;

/// values[i] *= factor, as if in double and rounded once but for one value in a million or so: a mean of
/// whole numbers that is whole comes out exact. f32 or f64.
void scale(Elements values, double factor) noexcept;
/// target[i] = source[i] * factor, rounded to the target's type; one of the two is f32 or f64, the other of
/// the same type or, for f32, f16 or bf16. No overlap. False if a number became too large for a 16-bit
/// target.
bool scale_into(Elements target, ConstElements source, double factor) noexcept;
/// target[i] += source[i] * factor. No overlap. The target is f32 or f64, the source of the same type or, for
/// f32, f16 or bf16.
void add_scaled(Elements target, ConstElements source, double factor) noexcept;
/// Sum of the squares of f32 or f64, within 1e-6 of itself, in an order that depends on the values alone: f32
/// 16 at a time in float, in double from there on; all in double where float's range does not do.
double sum_of_squares(ConstElements values) noexcept;
/// `sum_of_squares`, and then `scale`, in one pass.
double square_and_scale(Elements values, double factor) noexcept;

}  // namespace ddl::elementwise
