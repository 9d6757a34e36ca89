#include "ddl/topology/rank_map.hpp"

#include <algorithm>
#include <unordered_map>

#include "ddl/error.hpp"

namespace ddl::topology {

RankMap::RankMap(const std::vector<std::string>& host_names) {
  if (host_names.empty()) {
    throw Error(ErrorCode::invalid_argument, "a rank map needs at least one rank, got no host names");
  }
  std::unordered_map<std::string, int> index_of;
  host_of_.reserve(host_names.size());
  local_rank_.reserve(host_names.size());
  for (std::size_t rank = 0; rank < host_names.size(); ++rank) {
    const auto [entry, is_new] = index_of.try_emplace(host_names[rank], hosts());
    if (is_new) {
      names_.push_back(host_names[rank]);
      ranks_of_.emplace_back();
    }
    auto& members = ranks_of_[static_cast<std::size_t>(entry->second)];
    host_of_.push_back(entry->second);
    local_rank_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
  }
}

std::string RankMap::short_name(int host) const {
  const auto first_part = [](const std::string& name) { return name.substr(0, name.find('/')); };
  const std::string result = first_part(host_name(host));
  const bool is_unique = std::ranges::count(names_, result, first_part) == 1 && !result.empty();
  return is_unique ? result : host_name(host);
}

}  // namespace ddl::topology
