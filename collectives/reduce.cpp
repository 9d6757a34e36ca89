#include "collectives/reduce.hpp"

#include <cstdint>
#include <type_traits>

// The kernels are compiled once per instruction set and chosen when the program is loaded. The
// sanitizers' own start-up code does not survive that choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DDL_SANITIZED)
#define DDL_KERNEL __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define DDL_KERNEL
#endif

namespace ddl::collectives {
namespace {

// Data in a transport may start at any byte.
template <typename T>
struct Unaligned {
  typedef T type __attribute__((aligned(1), may_alias));
};

// Integers wrap around instead of overflowing.
template <typename T>
struct Arithmetic {
  using type = T;
};
template <>
struct Arithmetic<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Arithmetic<std::int64_t> {
  using type = std::uint64_t;
};

template <typename T, typename F>
[[gnu::always_inline]] inline void combine(void* accumulator, const void* values, std::size_t count, F f) {
  auto* a = static_cast<typename Unaligned<T>::type*>(accumulator);
  const auto* b = static_cast<const typename Unaligned<T>::type*>(values);
  for (std::size_t i = 0; i < count; ++i) a[i] = f(static_cast<T>(a[i]), static_cast<T>(b[i]));
}

// Spelled so that it vectorises: an x that is NaN stays, a y that is NaN fails the comparison.
template <typename T>
[[gnu::always_inline]] inline T smaller(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) return ((x < y) | (x != x)) ? x : y;
  return x < y ? x : y;
}
template <typename T>
[[gnu::always_inline]] inline T larger(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) return ((x > y) | (x != x)) ? x : y;
  return x > y ? x : y;
}

template <typename T>
[[gnu::always_inline]] inline void reduce_as(ReduceOp op, void* a, const void* b, std::size_t count) {
  using U = typename Arithmetic<T>::type;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return combine<U>(a, b, count, [](U x, U y) { return static_cast<U>(x + y); });
    case ReduceOp::prod:
      return combine<U>(a, b, count, [](U x, U y) { return static_cast<U>(x * y); });
    case ReduceOp::min:
      return combine<T>(a, b, count, [](T x, T y) { return smaller(x, y); });
    case ReduceOp::max:
      return combine<T>(a, b, count, [](T x, T y) { return larger(x, y); });
  }
}

template <typename T>
[[gnu::always_inline]] inline void divide(void* values, std::size_t count, int by) {
  auto* v = static_cast<typename Unaligned<T>::type*>(values);
  const T divisor = static_cast<T>(by);
  if constexpr (sizeof(T) == 1) {
    for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<T>(static_cast<int>(v[i]) / by);
  } else {
    for (std::size_t i = 0; i < count; ++i) v[i] = v[i] / divisor;
  }
}

DDL_KERNEL void reduce_u8(ReduceOp op, void* a, const void* b, std::size_t n) {
  reduce_as<std::uint8_t>(op, a, b, n);
}
DDL_KERNEL void reduce_i32(ReduceOp op, void* a, const void* b, std::size_t n) {
  reduce_as<std::int32_t>(op, a, b, n);
}
DDL_KERNEL void reduce_i64(ReduceOp op, void* a, const void* b, std::size_t n) {
  reduce_as<std::int64_t>(op, a, b, n);
}
DDL_KERNEL void reduce_f32(ReduceOp op, void* a, const void* b, std::size_t n) {
  reduce_as<float>(op, a, b, n);
}
DDL_KERNEL void reduce_f64(ReduceOp op, void* a, const void* b, std::size_t n) {
  reduce_as<double>(op, a, b, n);
}

}  // namespace

void reduce(DataType type, ReduceOp op, void* accumulator, const void* values, std::size_t count) noexcept {
  switch (type) {
    case DataType::u8:
      return reduce_u8(op, accumulator, values, count);
    case DataType::i32:
      return reduce_i32(op, accumulator, values, count);
    case DataType::i64:
      return reduce_i64(op, accumulator, values, count);
    case DataType::f32:
      return reduce_f32(op, accumulator, values, count);
    case DataType::f64:
      return reduce_f64(op, accumulator, values, count);
  }
}

void finish(DataType type, ReduceOp op, void* values, std::size_t count, int ranks) noexcept {
  if (op != ReduceOp::avg || ranks == 1) return;
  switch (type) {
    case DataType::u8:
      return divide<std::uint8_t>(values, count, ranks);
    case DataType::i32:
      return divide<std::int32_t>(values, count, ranks);
    case DataType::i64:
      return divide<std::int64_t>(values, count, ranks);
    case DataType::f32:
      return divide<float>(values, count, ranks);
    case DataType::f64:
      return divide<double>(values, count, ranks);
  }
}

}  // namespace ddl::collectives
