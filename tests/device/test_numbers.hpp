#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "ddl/data_type.hpp"

namespace ddl {

/// Calls f with a value of the element's type.
template <typename F>
void with_type(DataType type, const F& f) {
  switch (type) {
    case DataType::u8:
      return f(std::uint8_t{});
    case DataType::i32:
      return f(std::int32_t{});
    case DataType::i64:
      return f(std::int64_t{});
    case DataType::f32:
      return f(float{});
    case DataType::f64:
      return f(double{});
    case DataType::f16:
      return f(float16{});
    case DataType::bf16:
      return f(bfloat16{});
  }
}

/// Numbers for reductions, different for each seed.
inline std::vector<std::byte> random_bytes(DataType type, std::size_t count, std::uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<std::byte> bytes(count * size_of(type));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      const int number = static_cast<int>(random() % 2001U) - 1000;
      T value;
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(number * 1'000'003LL);
      } else {
        value = static_cast<T>(static_cast<float>(number) / 7);
      }
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

/// Integers from 1 to `most`.
inline std::vector<std::byte> small_numbers(DataType type, std::size_t count, std::uint32_t seed,
                                            unsigned most) {
  std::minstd_rand random(seed);
  std::vector<std::byte> bytes(count * size_of(type));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      const T value = static_cast<T>(static_cast<float>(random() % most + 1));
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace ddl
