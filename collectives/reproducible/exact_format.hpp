#pragma once

#include <cstddef>
#include <cstdint>

namespace ddl::collectives {

/// What a float type is made of, and what stands for it where the order of a reduction must not matter.
template <typename Unsigned, typename Integer, int mantissa_bits, int exponent_bits>
struct FloatFormat {
  using Bits = Unsigned;
  using Signed = Integer;                         ///< Holds the mantissa, with its first bit and the sign.
  using Key = Integer;                            ///< For `min` and `max`: ordered as the floats are.
  static constexpr int mantissa = mantissa_bits;  ///< Without the first bit.
  static constexpr int exponent = exponent_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int special = (1 << exponent_bits) - 1;  ///< The exponent of infinity and NaN.
};

struct F32Format : FloatFormat<std::uint32_t, std::int32_t, 23, 8> {
  using Scale = std::uint8_t;
  static constexpr std::size_t limbs = 1;
};
struct F64Format : FloatFormat<std::uint64_t, std::int64_t, 52, 11> {
  using Scale = std::int32_t;
  static constexpr std::size_t limbs = 2;
};
struct F16Format : FloatFormat<std::uint16_t, std::int32_t, 10, 5> {
  using Scale = std::uint8_t;
  static constexpr std::size_t limbs = 1;
};
struct BF16Format : FloatFormat<std::uint16_t, std::int32_t, 7, 8> {
  using Scale = std::uint8_t;
  static constexpr std::size_t limbs = 1;
};

/// What wins over all other keys.
template <typename Key>
struct ExactKey {
  static constexpr Key of_nan(bool greatest) noexcept {
    const Key last = static_cast<Key>(~(Key{1} << (sizeof(Key) * 8 - 1)));
    return greatest ? last : static_cast<Key>(~last);
  }
};

}  // namespace ddl::collectives
