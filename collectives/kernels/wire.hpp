#pragma once

#include <cstddef>
#include <span>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

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
/// For values that `type` can represent.
void narrow(DataType type, std::span<const float> values, std::byte* packed) noexcept;
void widen(DataType type, const std::byte* packed, std::span<float> values) noexcept;

}  // namespace ddl::collectives
