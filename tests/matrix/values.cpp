#include "matrix/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace matrix {

using ddl::DataType;
using ddl::ReduceOp;

namespace {

/// Vigna's splitmix64.
std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
  return value ^ (value >> 31U);
}

/// In [0, 1).
long double unit(std::uint64_t random) noexcept { return static_cast<long double>(random >> 11U) * 0x1p-53L; }

template <typename T>
constexpr bool is_float16 = std::is_same_v<T, ddl::float16> || std::is_same_v<T, ddl::bfloat16>;

template <typename T>
T rounded(long double value) {
  if constexpr (is_float16<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
long double widened(T value) {
  if constexpr (is_float16<T>) {
    return static_cast<long double>(static_cast<float>(value));
  } else {
    return static_cast<long double>(value);
  }
}

template <typename Function>
decltype(auto) with_element(DataType type, Function&& function) {
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

/// u: the largest relative error of one rounding; 0 of integers.
long double unit_roundoff(DataType type) noexcept {
  switch (type) {
    case DataType::f16:
      return 0x1p-11L;
    case DataType::bf16:
      return 0x1p-8L;
    case DataType::f32:
      return 0x1p-24L;
    case DataType::f64:
      return 0x1p-53L;
    default:
      return 0;
  }
}

bool is_integer(DataType type) noexcept { return unit_roundoff(type) == 0; }

long double gamma(int roundings, long double u) noexcept {
  const long double k = roundings;
  return k * u / (1 - k * u);
}

constexpr int most_twos = 6;       // of a product of integers
constexpr int greatest_sum = 240;  // of integers: fits u8, and is exact in bf16

}  // namespace

Inputs::Inputs(const Case& one) : case_(one) {
  reductions_.resize(period);
  for (std::size_t i = 0; i < period; ++i) reductions_[i] = reduce(i);
}

long double Inputs::input(int rank, std::size_t index) const {
  const std::size_t i = index % period;
  const std::uint64_t random = mix(static_cast<std::uint64_t>(rank) * period + i);
  const bool is_product = case_.op == ReduceOp::prod;
  if (case_.values == Values::integers) {
    if (is_product) return rank < most_twos && random % 2 == 0 ? 2 : 1;
    const int most = greatest_sum / most_ranks;
    const int least = case_.type == DataType::u8 ? 0 : -most;
    return least + static_cast<int>(random % static_cast<std::uint64_t>(most - least + 1));
  }
  constexpr std::uint64_t nan_every = 13;
  if (case_.values == Values::not_a_number && rank == static_cast<int>(i % most_ranks) &&
      random % nan_every == 0) {
    return std::numeric_limits<long double>::quiet_NaN();
  }
  // Products of 16 stay within f16's range.
  const long double sign = random % 2 == 0 ? 1 : -1;
  const long double size = is_product ? 0.75L + 0.5L * unit(random) : unit(random);
  return with_element(case_.type, [&](auto* type) {
    return widened(rounded<std::remove_pointer_t<decltype(type)>>(sign * size));
  });
}

Inputs::Expected Inputs::reduce(std::size_t index) const {
  const int n = case_.ranks;
  const long double u = unit_roundoff(case_.type);
  long double value = input(0, index);
  long double size = std::abs(value);  // sum of |x|
  for (int rank = 1; rank < n; ++rank) {
    const long double next = input(rank, index);
    size += std::abs(next);
    switch (case_.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        value += next;
        break;
      case ReduceOp::prod:
        value *= next;
        break;
      case ReduceOp::min:
        value = std::isnan(value) || std::isnan(next) ? value + next : std::min(value, next);
        break;
      case ReduceOp::max:
        value = std::isnan(value) || std::isnan(next) ? value + next : std::max(value, next);
        break;
    }
  }
  const bool is_exact = case_.values == Values::integers;
  if (case_.op == ReduceOp::min || case_.op == ReduceOp::max) return {value, 0};
  if (case_.op == ReduceOp::prod) return {value, is_exact ? 0 : gamma(n - 1, u) * std::abs(value)};
  if (case_.op == ReduceOp::sum) return {value, is_exact ? 0 : gamma(n - 1, u) * size};
  if (is_integer(case_.type)) return {std::trunc(value / n), 0};
  const long double average = value / n;
  return {average, (is_exact ? 0 : gamma(n - 1, u) * size / n * (1 + u)) + u * std::abs(average)};
}

void Inputs::write(int rank, std::size_t first, std::span<std::byte> to) const {
  with_element(case_.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<T> table(period);
    for (std::size_t i = 0; i < period; ++i) table[i] = rounded<T>(input(rank, first + i));
    for (std::size_t at = 0; at < to.size(); at += period * sizeof(T)) {
      std::memcpy(to.data() + at, table.data(), std::min(period * sizeof(T), to.size() - at));
    }
  });
}

template <typename T>
std::size_t Inputs::count_other_inputs(int rank, std::size_t first, const T* found, std::size_t count) const {
  std::vector<long double> table(period);
  for (std::size_t i = 0; i < period; ++i) table[i] = input(rank, first + i);
  std::size_t others = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const long double value = widened(found[i]);
    const long double right = table[i % period];
    const bool is_right = value == right || (std::isnan(value) && std::isnan(right));
    if (!is_right) ++others;
  }
  return others;
}

template <typename T>
std::size_t Inputs::count_other_reductions(std::size_t first, const T* found, std::size_t count) const {
  std::size_t others = 0;
  for (std::size_t i = 0, at = first % period; i < count; ++i) {
    const long double value = widened(found[i]);
    const Expected& right = reductions_[at];
    const bool is_right =
        std::isnan(right.value) ? std::isnan(value) : std::abs(value - right.value) <= right.tolerance;
    if (!is_right) ++others;
    if (++at == period) at = 0;
  }
  return others;
}

std::size_t Inputs::differ_from_input(int rank, std::size_t first, std::span<const std::byte> found) const {
  return with_element(case_.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return count_other_inputs(rank, first, reinterpret_cast<const T*>(found.data()),
                              found.size() / sizeof(T));
  });
}

std::size_t Inputs::differ_from_reduction(std::size_t first, std::span<const std::byte> found) const {
  return with_element(case_.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return count_other_reductions(first, reinterpret_cast<const T*>(found.data()), found.size() / sizeof(T));
  });
}

}  // namespace matrix
