#include "nmt_example/options/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace nmt {
namespace {

/// Levenshtein's distance (1966), one row of its table at a time.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> costs(to.size() + 1);
  std::iota(costs.begin(), costs.end(), std::size_t{0});
  for (const char letter : from) {
    std::size_t replaced = costs.front()++;
    for (std::size_t j = 1; j < costs.size(); ++j) {
      const std::size_t edited = std::min(costs[j - 1], costs[j]) + 1;
      replaced = std::exchange(costs[j], std::min(edited, replaced + (letter == to[j - 1] ? 0U : 1U)));
    }
  }
  return costs.back();
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  name = name.substr(0, 64);  // a longer name is no typing mistake
  return *std::ranges::min_element(names, {}, [&](std::string_view other) { return distance(name, other); });
}

}  // namespace nmt
