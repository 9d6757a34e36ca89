#pragma once

#include <cstdint>
#include <type_traits>

#include "ddl/data_type.hpp"

namespace perf {

template <typename T>
constexpr bool is_float16 = std::is_same_v<T, ddl::float16> || std::is_same_v<T, ddl::bfloat16>;

/// Calls `function` with a null pointer to the C++ type of `type`.
template <typename Function>
decltype(auto) with_element(ddl::DataType type, Function&& function) {
  using ddl::DataType;
  switch (type) {
    case DataType::u8:
      return function(static_cast<std::uint8_t*>(nullptr));
    case DataType::i32:
      return function(static_cast<std::int32_t*>(nullptr));
    case DataType::i64:
      return function(static_cast<std::int64_t*>(nullptr));
    case DataType::f16:
      return function(static_cast<ddl::float16*>(nullptr));
    case DataType::bf16:
      return function(static_cast<ddl::bfloat16*>(nullptr));
    case DataType::f64:
      return function(static_cast<double*>(nullptr));
    default:
      return function(static_cast<float*>(nullptr));
  }
}

template <typename T>
T element_of(std::int64_t value) {
  if constexpr (is_float16<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double number_of(T value) {
  if constexpr (is_float16<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace perf
