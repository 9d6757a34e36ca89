#pragma once

#include <span>

#include "collectives/kernels/reduce.hpp"

/// Passes over gradients. Each reads and writes every element once; memory limits them. All instruction sets
/// give the same bits, but for those that a NaN carries.
namespace ddl::elementwise {

struct Kernels;
/// Those for machines that have an instruction set.
const Kernels& kernels_of(collectives::InstructionSet set) noexcept;

/// values[i] *= factor, as if in double and rounded once but for one value in a million or so: a mean of
/// whole numbers that is whole comes out exact.
void scale(std::span<float> values, double factor) noexcept;
/// target[i] = source[i] * factor. No overlap.
void scale_into(std::span<float> target, std::span<const float> source, double factor) noexcept;
/// target[i] += source[i] * factor. No overlap.
void add_scaled(std::span<float> target, std::span<const float> source, double factor) noexcept;
/// Sum of the squares, within 1e-6 of itself, in an order that depends on the values alone: 16 at a time in
/// float, in double from there on; all in double where float's range does not do.
double sum_of_squares(std::span<const float> values) noexcept;
/// `sum_of_squares`, and then `scale`, in one pass.
double square_and_scale(std::span<float> values, double factor) noexcept;

}  // namespace ddl::elementwise
