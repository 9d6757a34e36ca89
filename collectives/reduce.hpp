#pragma once

#include <cstddef>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// accumulator[i] = accumulator[i] op values[i]; `avg` sums. Neither needs to be aligned. Integers
/// wrap around. `min` and `max` of anything and NaN are NaN.
void reduce(DataType type, ReduceOp op, void* accumulator, const void* values, std::size_t count) noexcept;

/// What is left to do once all contributions are in: `avg` divides by the number of ranks, integers
/// truncating towards zero.
void finish(DataType type, ReduceOp op, void* values, std::size_t count, int ranks) noexcept;

}  // namespace ddl::collectives
