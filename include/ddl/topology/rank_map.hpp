#pragma once

#include <string>
#include <vector>

#include "ddl/topology/as_index.hpp"

namespace ddl::topology {

/// Which host each rank is on. Hosts are numbered by their lowest rank. A value; immutable.
class RankMap {
 public:
  /// `host_names[r]` is the host of rank r. Throws `invalid_argument` if empty.
  explicit RankMap(const std::vector<std::string>& host_names);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] int hosts() const noexcept { return static_cast<int>(ranks_of_.size()); }
  [[nodiscard]] int host_of(int rank) const { return host_of_.at(as_index(rank)); }
  /// Ranks of a host, ascending.
  [[nodiscard]] const std::vector<int>& ranks_of(int host) const { return ranks_of_.at(as_index(host)); }
  [[nodiscard]] const std::string& host_name(int host) const { return names_.at(as_index(host)); }
  /// For people: without what follows a '/' (a boot id), if the hosts' names still differ then.
  [[nodiscard]] std::string short_name(int host) const;
  /// Index of a rank among its host's ranks.
  [[nodiscard]] int local_rank(int rank) const { return local_rank_.at(as_index(rank)); }

 private:
  std::vector<int> host_of_;
  std::vector<int> local_rank_;
  std::vector<std::vector<int>> ranks_of_;
  std::vector<std::string> names_;
};

}  // namespace ddl::topology
