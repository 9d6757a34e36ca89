#pragma once

#include <cstddef>
#include <span>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

// f32 in 16 bits: `type` is bf16 or f16. All instruction sets give the same bits, but for those that a NaN
// carries. One pass over memory each.

/// What `round_to` reads and writes. `rounded` may be `values`; the others overlap nothing.
struct Rounding {
  const float* values = nullptr;
  float* rounded = nullptr;
  const float* kept = nullptr;  ///< Added first; null: nothing is.
  float* left = nullptr;        ///< values + kept - rounded, 0 where that is not finite. Null with `kept`.
};
/// rounded[i] = the nearest value of `type` to values[i] + kept[i], to even if there are two.
void round_to(DataType type, const Rounding& rounding, std::size_t count) noexcept;
/// Of values that `type` has.
void narrow(DataType type, std::span<const float> values, std::byte* packed) noexcept;
void widen(DataType type, const std::byte* packed, std::span<float> values) noexcept;

}  // namespace ddl::collectives
