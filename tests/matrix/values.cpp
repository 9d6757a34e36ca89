#include "matrix/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddl/hash.hpp"

namespace matrix {

using ddl::DataType;
using ddl::ReduceOp;

namespace {

/// Maps random bits to [0, 1).
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

/// u: the largest relative error of one rounding; 0 for integers.
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

constexpr int most_twos = 6;       // factors 2 in a product of integers
constexpr int greatest_sum = 240;  // of integers; fits u8 and is exact in bf16

/// An element of a rank's input, rounded to the case's type.
long double input(const Case& one, int rank, std::size_t i) {
  const std::uint64_t random = ddl::mix(static_cast<std::uint64_t>(rank) * Inputs::period + i);
  const bool is_product = one.op == ReduceOp::prod;
  if (one.values == Values::integers) {
    if (is_product) return rank < most_twos && random % 2 == 0 ? 2 : 1;
    const int most = greatest_sum / most_ranks;
    const int least = one.type == DataType::u8 ? 0 : -most;
    return least + static_cast<int>(random % static_cast<std::uint64_t>(most - least + 1));
  }
  constexpr std::uint64_t nan_every = 13;
  if (one.values == Values::not_a_number && rank == static_cast<int>(i % most_ranks) &&
      random % nan_every == 0) {
    return std::numeric_limits<long double>::quiet_NaN();
  }
  // Products of 16 factors stay in the range of f16.
  const long double sign = random % 2 == 0 ? 1 : -1;
  const long double size = is_product ? 0.75L + 0.5L * unit(random) : unit(random);
  return with_element(one.type, [&](auto* type) {
    return widened(rounded<std::remove_pointer_t<decltype(type)>>(sign * size));
  });
}

struct Expected {
  long double value = 0;
  long double tolerance = 0;
};

/// The expected reduction of one element over all ranks.
Expected reduced(const Case& one, std::span<const long double> inputs) {
  const auto n = static_cast<int>(inputs.size());
  const long double u = unit_roundoff(one.type);
  long double value = inputs[0];
  long double size = std::abs(value);  // sum of |x|
  for (const long double next : inputs.subspan(1)) {
    size += std::abs(next);
    switch (one.op) {
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
  const bool is_exact = one.values == Values::integers;
  if (one.op == ReduceOp::min || one.op == ReduceOp::max) return {value, 0};
  if (one.op == ReduceOp::prod) return {value, is_exact ? 0 : gamma(n - 1, u) * std::abs(value)};
  if (one.op == ReduceOp::sum) return {value, is_exact ? 0 : gamma(n - 1, u) * size};
  if (is_integer(one.type)) return {std::trunc(value / n), 0};
  const long double average = value / n;
  return {average, (is_exact ? 0 : gamma(n - 1, u) * size / n * (1 + u)) + u * std::abs(average)};
}

/// The number of elements for which `is_right(at, element)` is false; `at` is the position in the period.
/// Elements with the same bits as one period earlier are not checked again.
template <typename T, typename IsRight>
std::size_t count_wrong(std::size_t first, std::span<const T> found, const IsRight& is_right) {
  std::size_t wrong = 0;
  bool is_last_right = false;
  for (std::size_t begin = 0; begin < found.size(); begin += Inputs::period) {
    const std::size_t count = std::min(Inputs::period, found.size() - begin);
    const T* const block = found.data() + begin;
    if (is_last_right && std::memcmp(block, block - Inputs::period, count * sizeof(T)) == 0) continue;
    std::size_t others = 0;
    for (std::size_t i = 0, at = first % Inputs::period; i < count; ++i) {
      if (!is_right(at, widened(block[i]))) ++others;
      if (++at == Inputs::period) at = 0;
    }
    wrong += others;
    is_last_right = others == 0;
  }
  return wrong;
}

template <typename T>
std::span<const T> elements(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

struct Inputs::Tables {
  std::vector<std::vector<long double>> inputs;  // by rank: one period, rounded to the type
  std::vector<Expected> reductions;              // one period
};

std::shared_ptr<const Inputs::Tables> Inputs::tables_of(const Case& one) {
  static std::mutex mutex;
  static std::map<std::tuple<DataType, ReduceOp, Values, int>, std::shared_ptr<const Tables>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Tables>& found = known[{one.type, one.op, one.values, one.ranks}];
  if (found != nullptr) return found;
  Tables tables;
  for (int rank = 0; rank < one.ranks; ++rank) {
    std::vector<long double>& row = tables.inputs.emplace_back();
    for (std::size_t i = 0; i < period; ++i) row.push_back(input(one, rank, i));
  }
  std::vector<long double> column(tables.inputs.size());
  for (std::size_t i = 0; i < period; ++i) {
    std::ranges::transform(tables.inputs, column.begin(), [&](const auto& row) { return row[i]; });
    tables.reductions.push_back(reduced(one, column));
  }
  return found = std::make_shared<const Tables>(std::move(tables));
}

Inputs::Inputs(const Case& one) : case_(one), tables_(tables_of(one)) {}

void Inputs::write(int rank, std::size_t first, std::span<std::byte> to) const {
  const std::vector<long double>& row = tables_->inputs.at(static_cast<std::size_t>(rank));
  with_element(case_.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<T> table(std::min(period, to.size() / sizeof(T)));
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = rounded<T>(row[(first + i) % period]);
    for (std::size_t at = 0; at < to.size(); at += period * sizeof(T)) {
      std::memcpy(to.data() + at, table.data(), std::min(period * sizeof(T), to.size() - at));
    }
  });
}

std::size_t Inputs::differ_from_input(int rank, std::size_t first, std::span<const std::byte> found) const {
  const std::vector<long double>& row = tables_->inputs.at(static_cast<std::size_t>(rank));
  return with_element(case_.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return count_wrong(first, elements<T>(found), [&](std::size_t at, long double value) {
      return value == row[at] || (std::isnan(value) && std::isnan(row[at]));
    });
  });
}

std::size_t Inputs::differ_from_reduction(std::size_t first, std::span<const std::byte> found) const {
  return with_element(case_.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return count_wrong(first, elements<T>(found), [&](std::size_t at, long double value) {
      const Expected& right = tables_->reductions[at];
      return std::isnan(right.value) ? std::isnan(value) : std::abs(value - right.value) <= right.tolerance;
    });
  });
}

}  // namespace matrix
