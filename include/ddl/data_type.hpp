#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ddl/float16.hpp"

namespace ddl {

/// Element types that collectives move and reduce: unsigned and signed integers and IEEE 754 floats of the
/// named width in bits. f16 is `float16` and bf16 is `bfloat16`; reductions accumulate both in f32.
enum class DataType : std::uint8_t {
  u8,    ///< std::uint8_t
  i32,   ///< std::int32_t
  i64,   ///< std::int64_t
  f32,   ///< float
  f64,   ///< double
  f16,   ///< float16
  bf16,  ///< bfloat16
};

/// How a reduction combines the ranks' elements. `avg` divides the sum by the number of ranks; for integers
/// it truncates towards zero.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, prod };

/// Bytes of one element; 0 for a value that is no `DataType`.
constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::u8:
      return 1;
    case DataType::i32:
      return 4;
    case DataType::i64:
      return 8;
    case DataType::f32:
      return 4;
    case DataType::f64:
      return 8;
    case DataType::f16:
      return 2;
    case DataType::bf16:
      return 2;
  }
  return 0;
}

/// "u8", "i32", ...
std::string_view to_string(DataType type) noexcept;
/// "sum", "avg", ...
std::string_view to_string(ReduceOp op) noexcept;

/// The C++ types of elements: one for each `DataType`.
template <typename T>
concept Element = std::same_as<T, std::uint8_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// The `DataType` of the C++ type `T`.
template <Element T>
constexpr DataType data_type_of() noexcept {
  if constexpr (std::same_as<T, std::uint8_t>) return DataType::u8;
  if constexpr (std::same_as<T, std::int32_t>) return DataType::i32;
  if constexpr (std::same_as<T, std::int64_t>) return DataType::i64;
  if constexpr (std::same_as<T, float>) return DataType::f32;
  if constexpr (std::same_as<T, float16>) return DataType::f16;
  if constexpr (std::same_as<T, bfloat16>) return DataType::bf16;
  return DataType::f64;
}

}  // namespace ddl
