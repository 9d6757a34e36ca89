#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// What kernels are compiled for; a machine that has one has all before it.
enum class InstructionSet { baseline, avx2, avx512 };  // avx2: with F16C and FMA; avx512: F, BW, DQ, VL

std::string_view to_string(InstructionSet set) noexcept;
/// The best one that this machine has; found once.
InstructionSet native_instruction_set() noexcept;

/// How targets that are no inputs are written.
enum class Stores {
  automatic,  ///< As the size of this call's targets suggests.
  cached,     ///< Somebody reads them soon, and they fit into the caches.
  /// Past the caches, where the addresses allow it: saves reading the targets first, which is a fourth of the
  /// traffic of two inputs and one target. For pieces of something large.
  streaming,
};

/// One pass over memory: every target[i] = (inputs[0][i] op inputs[1][i]) op inputs[2][i] ..., for i in
/// [0, count). `avg` sums. With `divisor` above 1, which only goes with `avg`, the result is divided by it,
/// integers truncating towards zero. One input is a copy.
///
/// Operands may start at any byte. A target may be the same memory as an input, or not overlap it at all.
/// Integers wrap around. `min` and `max` of anything and NaN are NaN. 16-bit floats are combined in f32 and
/// rounded once, to nearest even. All instruction sets give the same bits, but for those that a NaN carries.
/// At least one input and one target.
///
/// Memory limits it from about 1 MiB on: `benchmarks/reduce_speed`. Targets that are inputs cost no reading
/// of their own; other targets of 8 MiB or more in one call are written past the caches (`Stores`).
void reduce(DataType type, ReduceOp op, std::span<std::byte* const> targets,
            std::span<const std::byte* const> inputs, std::size_t count, int divisor = 1,
            Stores stores = Stores::automatic) noexcept;
/// With a given instruction set, which the machine must have.
void reduce_with(InstructionSet set, DataType type, ReduceOp op, std::span<std::byte* const> targets,
                 std::span<const std::byte* const> inputs, std::size_t count, int divisor = 1,
                 Stores stores = Stores::automatic) noexcept;

}  // namespace ddl::collectives
