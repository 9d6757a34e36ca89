#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// Instruction sets with kernels. A machine that has one also has those before it.
enum class InstructionSet { baseline, avx2, avx512 };  // avx2: with F16C and FMA; avx512: F, BW, DQ, VL

std::string_view to_string(InstructionSet set) noexcept;
/// The best one of this machine; determined once.
InstructionSet native_instruction_set() noexcept;

/// How to write targets that are not inputs.
enum class Stores {
  automatic,  ///< Chosen by the size of this call's targets.
  cached,     ///< The targets are read soon and fit into the caches.
  /// Past the caches, if the addresses allow it. Saves reading the targets first, which is a fourth of the
  /// traffic with two inputs and one target. For parts of a large buffer.
  streaming,
};

/// In one pass over memory, target[i] = (inputs[0][i] op inputs[1][i]) op inputs[2][i] ... for every target
/// and i in [0, count). `avg` sums. A `divisor` above 1, allowed only with `avg`, divides the result;
/// integers truncate towards zero. With one input this is a copy.
///
/// Operands may start at any byte. A target may be the same memory as an input, or must not overlap it.
/// Integers wrap around. `min` and `max` of NaN and anything are NaN. 16-bit floats are combined in f32 and
/// rounded once, to nearest even. All instruction sets give the same bits, except for NaN payloads. Needs at
/// least one input and one target.
///
/// Bound by memory from about 1 MiB on: see `benchmarks/reduce_speed`. A target that is an input costs no
/// extra read; other targets of 8 MiB or more in one call are written past the caches (`Stores`).
void reduce(DataType type, ReduceOp op, std::span<std::byte* const> targets,
            std::span<const std::byte* const> inputs, std::size_t count, int divisor = 1,
            Stores stores = Stores::automatic) noexcept;
/// The same with a given instruction set, which the machine must have.
void reduce_with(InstructionSet set, DataType type, ReduceOp op, std::span<std::byte* const> targets,
                 std::span<const std::byte* const> inputs, std::size_t count, int divisor = 1,
                 Stores stores = Stores::automatic) noexcept;

enum class CopyBy : bool { any, vectors };
/// Copies as memmove does. On AMD's processors, 4 KiB to 8 MiB are copied with vectors, or with `rep movsb`
/// from 32 KiB on where that is not slow: from Zen 3 on, it has a sixth of its rate if the buffers' places in
/// their pages differ little (glibc bug 30994), which glibc before 2.40 does not avoid. `rep movsb` does not
/// read the lines that it replaces; what another core has written, vectors read up to twice as fast.
void copy_bytes(void* to, const void* from, std::size_t bytes, CopyBy by = CopyBy::any) noexcept;
/// The same to memory that another core has in its cache, and that does not overlap `from`: with `rep movsb`,
/// from 2 KiB on where it is not slow.
void copy_to_peer(void* to, const void* from, std::size_t bytes) noexcept;
/// For memory that does not overlap `from`. Writes past the caches.
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept;
/// With the vectors of an instruction set, which the machine must have. At least 64 bytes; no overlap.
void copy_bytes_with(InstructionSet set, void* to, const void* from, std::size_t bytes,
                     bool streaming = false) noexcept;

// f32 values in 16 bits; `type` is bf16 or f16. All instruction sets give the same bits, except for NaN
// payloads. Each function makes one pass over memory.

/// The operands of `round_to`. `rounded` may be `values`; other buffers must not overlap.
struct Rounding {
  const float* values = nullptr;
  float* rounded = nullptr;
  const float* kept = nullptr;  ///< Added to the values; null if there is nothing to add.
  float* left = nullptr;        ///< values + kept - rounded, or 0 if that is not finite. Null if `kept` is.
};
/// rounded[i] = the value of `type` nearest to values[i] + kept[i]; ties go to even.
void round_to(DataType type, const Rounding& rounding, std::size_t count) noexcept;
/// packed[i] = the value of `type` nearest to values[i]; ties go to even.
void narrow(DataType type, std::span<const float> values, std::byte* packed) noexcept;
void widen(DataType type, const std::byte* packed, std::span<float> values) noexcept;

}  // namespace ddl::collectives
