#include "ddl/topology/decomposition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "topology/json_text.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::topology {
namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 24;

std::vector<int> parse_sizes(std::string_view list, char separator, std::string_view text) {
  std::vector<int> sizes;
  for (const std::string_view digits : split(list, separator)) {
    const auto size = parse_whole<int>(digits);
    if (!size || *size < 1 || *size > most_ranks) {
      refuse(
          "decomposition {}: found {}, expected sizes from 1 to {} joined by x, as in "
          "4x8x2, or the sizes of unequal hosts first, as in 4,3,2x3",
          in_quotes(text), in_quotes(digits), most_ranks);
    }
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace

Decomposition::Decomposition(std::vector<int> group_sizes, std::vector<int> outer)
    : group_sizes_(std::move(group_sizes)), outer_(std::move(outer)) {
  std::int64_t groups = 1;
  for (const int size : outer_) {
    if (size < 1) refuse("decomposition: found a dimension of size {}, expected at least 1", size);
    groups *= size;
    if (groups > most_ranks) {
      refuse("decomposition: found {} groups or more, expected at most {} positions", groups, most_ranks);
    }
  }
  if (group_sizes_.empty() ||
      (group_sizes_.size() != 1 && static_cast<std::int64_t>(group_sizes_.size()) != groups)) {
    refuse(
        "decomposition: found the sizes of {} groups, expected {} (the product of the other "
        "dimensions) or one size for all",
        group_sizes_.size(), groups);
  }
  std::int64_t ranks = 0;
  for (const int size : group_sizes_) {
    if (size < 1) refuse("decomposition: found a group of size {}, expected at least 1", size);
    ranks += size;
  }
  if (std::all_of(group_sizes_.begin(), group_sizes_.end(),
                  [&](int size) { return size == group_sizes_[0]; })) {
    ranks = groups * group_sizes_[0];
    group_sizes_.erase(group_sizes_.begin() + 1, group_sizes_.end());
  }
  if (ranks > most_ranks) refuse("decomposition: found {} positions, expected at most {}", ranks, most_ranks);
  groups_ = static_cast<int>(groups);
  ranks_ = static_cast<int>(ranks);
  if (ragged()) {
    group_begins_.push_back(0);
    for (const int size : group_sizes_) group_begins_.push_back(group_begins_.back() + size);
  }
}

Decomposition Decomposition::parse(std::string_view text, int ranks) {
  const std::size_t first_end = std::min(text.find('x'), text.size());
  std::vector<int> outer;
  if (first_end != text.size()) outer = parse_sizes(text.substr(first_end + 1), 'x', text);
  const auto parsed = [&] {
    std::vector<int> group_sizes = parse_sizes(text.substr(0, first_end), ',', text);
    try {
      return Decomposition(std::move(group_sizes), std::move(outer));
    } catch (const Error& error) {
      refuse("{}: {}", in_quotes(text), error.what());
    }
  };
  Decomposition result = parsed();
  if (result.ranks() != ranks) {
    refuse("decomposition {} has {} positions, but there {} {} rank{}: {} must be the number of ranks",
           printable(text), result.ranks(), ranks == 1 ? "is" : "are", ranks, ranks == 1 ? "" : "s",
           result.ragged() ? "the sum of its groups' sizes" : "the product of its sizes");
  }
  return result;
}

int Decomposition::size(int dimension) const {
  if (dimension == 0) return *std::max_element(group_sizes_.begin(), group_sizes_.end());
  return outer_.at(as_index(dimension - 1));
}

int Decomposition::group_of(int position) const {
  if (!ragged()) return position / group_sizes_[0];
  const auto after = std::upper_bound(group_begins_.begin(), group_begins_.end(), position);
  return static_cast<int>(after - group_begins_.begin()) - 1;
}

std::string to_string(const Decomposition& decomposition) {
  std::string text = fmt::format("{}", fmt::join(decomposition.group_sizes(), ","));
  for (const int size : decomposition.outer()) text += fmt::format("x{}", size);
  return text;
}

}  // namespace ddl::topology
