#include "perf/test_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ddl/hash.hpp"
#include "perf/element.hpp"
#include "perf/settings.hpp"

namespace perf {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;

namespace {

constexpr int most_twos = 6;  // factors 2 in a product; 2^6 is exact in every type

/// All integers up to this are exact in the type.
std::int64_t greatest_exact(DataType type) noexcept {
  switch (type) {
    case DataType::u8:
      return 255;
    case DataType::bf16:
      return 256;
    case DataType::f16:
      return 2048;
    default:
      return std::int64_t{1} << 24U;
  }
}

/// The relative distance between adjacent values.
double epsilon(DataType type) noexcept {
  switch (type) {
    case DataType::f16:
      return 0x1p-10;
    case DataType::bf16:
      return 0x1p-7;
    case DataType::f32:
      return 0x1p-23;
    case DataType::f64:
      return 0x1p-52;
    default:
      return 0;
  }
}

template <typename T>
void write(T* to, std::size_t count, std::size_t first, const std::vector<std::int64_t>& table) {
  std::vector<T> values(table.size());
  std::ranges::transform(table, values.begin(), element_of<T>);
  for (std::size_t i = 0, at = first % values.size(); i < count; ++i) {
    to[i] = values[at];
    if (++at == values.size()) at = 0;
  }
}

/// The number of elements that differ from table entries divided by `divisor`, beyond a relative `tolerance`.
template <typename T>
std::int64_t count_others(const T* found, std::size_t count, std::size_t first,
                          const std::vector<std::int64_t>& table, int divisor, double tolerance) {
  constexpr bool is_integer = std::numeric_limits<T>::is_integer;
  std::vector<double> right(table.size());
  std::ranges::transform(table, right.begin(), [&](std::int64_t value) {
    return is_integer ? static_cast<double>(value / divisor) : static_cast<double>(value) / divisor;
  });
  std::int64_t wrong = 0;
  for (std::size_t i = 0, at = first % right.size(); i < count; ++i) {
    const bool is_right = std::abs(number_of(found[i]) - right[at]) <= tolerance * std::abs(right[at]);
    if (!is_right) ++wrong;  // true for NaN too
    if (++at == right.size()) at = 0;
  }
  return wrong;
}

}  // namespace

TestValues::TestValues(Collective collective, DataType type, ReduceOp op, int root, int rank, int ranks)
    : collective_(collective),
      type_(type),
      op_(op),
      root_(root),
      rank_(rank),
      ranks_(ranks),
      contributors_(ranks) {
  const bool is_signed = type != DataType::u8;
  most_ = 100;
  if (has_op(collective) && (op == ReduceOp::sum || op == ReduceOp::avg)) {
    contributors_ = static_cast<int>(std::min<std::int64_t>(ranks, greatest_exact(type)));
    most_ = std::min<std::int64_t>(most_, greatest_exact(type) / contributors_);
  }
  least_ = is_signed ? -most_ : 0;
  own_ = contributions(rank);
  if (has_op(collective)) reduced_ = reductions();
}

std::int64_t TestValues::contribution(int rank, std::size_t index) const noexcept {
  const std::uint64_t random = ddl::mix(static_cast<std::uint64_t>(rank) * period + index);
  if (has_op(collective_) && op_ == ReduceOp::prod) return rank < most_twos && random % 2 == 0 ? 2 : 1;
  if (rank >= contributors_) return 0;
  return least_ + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(most_ - least_ + 1));
}

TestValues::Table TestValues::contributions(int rank) const {
  Table table(period);
  for (std::size_t i = 0; i < period; ++i) table[i] = contribution(rank, i);
  return table;
}

TestValues::Table TestValues::reductions() const {
  Table table = contributions(0);
  for (int rank = 1; rank < ranks_; ++rank) {
    for (std::size_t i = 0; i < period; ++i) {
      const std::int64_t value = contribution(rank, i);
      switch (op_) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          table[i] += value;
          break;
        case ReduceOp::prod:
          table[i] *= value;
          break;
        case ReduceOp::min:
          table[i] = std::min(table[i], value);
          break;
        case ReduceOp::max:
          table[i] = std::max(table[i], value);
          break;
      }
    }
  }
  return table;
}

std::size_t TestValues::first_of_input(const Call& call) const noexcept {
  return collective_ == Collective::all_gather ? static_cast<std::size_t>(rank_) * call.count : 0;
}

void TestValues::fill(const Call& call, std::byte* input) const {
  const auto n = static_cast<std::size_t>(ranks_);
  const std::size_t outputs = collective_ == Collective::all_gather ? call.count * n : call.count;
  const std::size_t inputs = collective_ == Collective::reduce_scatter ? call.count * n : call.count;
  const bool has_input = collective_ != Collective::broadcast || rank_ == root_;
  constexpr int garbage = 0xa5;
  std::memset(call.output, garbage, outputs * size_of(type_));
  if (!has_input) return;
  with_element(type_, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    write(reinterpret_cast<T*>(input), inputs, first_of_input(call), own_);
  });
}

std::int64_t TestValues::count_wrong(const Call& call) const {
  return with_element(type_, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto* output = reinterpret_cast<const T*>(call.output);
    const std::size_t count = call.count;
    const auto n = static_cast<std::size_t>(ranks_);
    const bool is_average = op_ == ReduceOp::avg;
    const auto reduced_wrong = [&](std::size_t first) {
      return count_others(output, count, first, reduced_, is_average ? ranks_ : 1,
                          is_average ? epsilon(type_) : 0);
    };
    std::int64_t wrong = 0;
    switch (collective_) {
      case Collective::all_reduce:
        wrong = reduced_wrong(0);
        break;
      case Collective::reduce_scatter:
        wrong = reduced_wrong(static_cast<std::size_t>(rank_) * count);
        break;
      case Collective::reduce:
        wrong = rank_ == root_ ? reduced_wrong(0) : 0;
        break;
      case Collective::broadcast:
        wrong = count_others(output, count, 0, contributions(root_), 1, 0);
        break;
      case Collective::all_gather:
        for (std::size_t rank = 0; rank < n; ++rank) {
          wrong += count_others(output + rank * count, count, rank * count,
                                contributions(static_cast<int>(rank)), 1, 0);
        }
        break;
      case Collective::barrier:
        break;
    }
    const bool has_input = collective_ != Collective::broadcast || rank_ == root_;
    if (!call.in_place && has_input) {
      const std::size_t inputs = collective_ == Collective::reduce_scatter ? count * n : count;
      wrong += count_others(reinterpret_cast<const T*>(call.input), inputs, first_of_input(call), own_, 1, 0);
    }
    return wrong;
  });
}

}  // namespace perf
