#include "topology/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ddl {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  if (names.empty()) return {};
  // Bounds the cost; a longer name is no typing mistake.
  name = name.substr(0, 256);
  return *std::ranges::min_element(names, {}, [&](std::string_view n) { return edit_distance(name, n); });
}

}  // namespace ddl
