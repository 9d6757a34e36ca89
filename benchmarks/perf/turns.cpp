#include "perf/turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace perf {

std::vector<std::size_t> drawn_kinds(std::size_t each, std::mt19937_64& random) {
  std::vector<std::size_t> kinds(2 * each);
  std::fill_n(kinds.begin(), each, 1);
  std::ranges::shuffle(kinds, random);
  return kinds;
}

double median(std::vector<double> values) {
  const auto upper = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, upper);
  if (values.size() % 2 == 1) return *upper;
  return std::midpoint(*std::max_element(values.begin(), upper), *upper);
}

TimesByKind time_in_turns(std::span<const Contender> contenders, std::size_t rounds,
                          std::mt19937_64& random) {
  std::vector<std::vector<double>> times(contenders.size());
  std::vector<std::size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) times[i].push_back(contenders[i].time());
  }
  TimesByKind result;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    result.at(contenders[i].kind).push_back(median(std::move(times[i])));
  }
  return result;
}

void print(const TimesByKind& times, std::string_view head, std::string_view kind_0,
           std::string_view kind_1) {
  const double first = median(times[0]), second = median(times[1]);
  const auto [least, most] = std::ranges::minmax(times[0]);
  fmt::print("{}: {:.1f} ns {}, {:.1f} ns {}:\n", head, first, kind_0, second, kind_1);
  fmt::print("{:+.1f} ns, {:+.2f}%; those {} differ by {:.1f} ns, {:.2f}%\n", second - first,
             100 * (second / first - 1), kind_0, most - least, 100 * (most - least) / first);
}

}  // namespace perf
