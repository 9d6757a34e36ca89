#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ddl/data_type.hpp"

namespace ddl {

/// Floats that are difficult to sum: of very different magnitudes, cancelling, overflowing, denormal, zeros
/// of either sign, infinite, and random bits including NaNs. Different on each rank.
inline std::vector<std::byte> hard_floats(DataType type, std::size_t count, int rank, int ranks) {
  const std::size_t size = size_of(type);
  const int mantissa = type == DataType::f64   ? 52
                       : type == DataType::f32 ? 23
                       : type == DataType::f16 ? 10
                                               : 7;
  const int width = static_cast<int>(size) * 8;
  const std::uint64_t all = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  const std::uint64_t sign = std::uint64_t{1} << (width - 1);
  const std::uint64_t infinity = (sign - 1) & ~((std::uint64_t{1} << mantissa) - 1);
  const std::uint64_t one = (infinity >> 1) & infinity;  // the exponent of 1
  std::vector<std::byte> bytes(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t random = (static_cast<std::uint64_t>(rank) * 0x100'0003 + i + 1) * 0x9e37'79b9'7f4a'7c15;
    random = (random ^ random >> 29) * 0xbf58'476d'1ce4'e5b9;
    random ^= random >> 32;
    const std::uint64_t fraction = random & ((std::uint64_t{1} << mantissa) - 1);
    const std::uint64_t random_sign = random >> 63 << (width - 1);
    std::uint64_t bits = 0;
    switch (i % 12) {
      case 0:
        bits = random & all;
        break;
      case 1:  // numbers of any magnitude
        bits = (random & all) % infinity | random_sign;
        break;
      case 2:  // the largest finite numbers
        bits = (infinity - 1 - random % 3) | random_sign;
        break;
      case 3:
        bits = fraction | random_sign;  // denormal
        break;
      case 4:
        bits = random_sign;
        break;
      case 5:  // infinite on one or two ranks, of either sign
        bits = static_cast<std::size_t>(rank) == i % static_cast<std::size_t>(ranks) ? infinity | random_sign
                                                                                     : one | fraction;
        break;
      case 6:  // the second rank's value nearly cancels the first's
        bits = rank % 2 == 0 ? one | (i & 127U) : (one | (i & 127U)) + 1;
        if (rank % 2 == 1) bits |= sign;
        break;
      case 7:  // halves of the last bit, which round to even
        bits = rank == 0 ? one | (i & 7U) : one - (static_cast<std::uint64_t>(mantissa + 1) << mantissa);
        break;
      default:  // of about the same magnitude on all ranks
        bits = (one + (random >> 50 & 3U) * (std::uint64_t{1} << mantissa)) | fraction | random_sign;
    }
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

}  // namespace ddl
