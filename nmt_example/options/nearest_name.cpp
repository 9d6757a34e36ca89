#include "nmt_example/options/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"

namespace nmt {
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

std::string_view nearest_flag_name(std::string_view name) {
  std::vector<std::string_view> names = {"help", "version"};
  for (const Flag& flag : all_flags()) names.push_back(flag.name);
  for (const TensorflowNmtFlag& flag : tensorflow_nmt_flags()) names.push_back(flag.name);
  return *std::ranges::min_element(names, {}, [&](std::string_view n) { return edit_distance(name, n); });
}

}  // namespace nmt
