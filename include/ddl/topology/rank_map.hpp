#pragma once

#include <string>
#include <vector>

#include "ddl/topology/as_index.hpp"

namespace ddl::topology {

/// The host of each rank. Hosts are numbered in the order of their lowest ranks. Immutable; any thread.
/// Functions with an argument throw std::out_of_range for a rank or host that does not exist.
class RankMap {
 public:
  /// `host_names[r]` is the name of rank r's host. Throws `invalid_argument` if there is none.
  explicit RankMap(const std::vector<std::string>& host_names);

  /// Number of ranks.
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(host_of_.size()); }
  /// Number of hosts.
  [[nodiscard]] int hosts() const noexcept { return static_cast<int>(ranks_of_.size()); }
  /// The number of a rank's host.
  [[nodiscard]] int host_of(int rank) const { return host_of_.at(as_index(rank)); }
  /// The ranks of a host, ascending.
  [[nodiscard]] const std::vector<int>& ranks_of(int host) const { return ranks_of_.at(as_index(host)); }
  /// A host's name as given, which may include a boot id after a '/'.
  [[nodiscard]] const std::string& host_name(int host) const { return names_.at(as_index(host)); }
  /// A host's name for people: without the part from '/' on, if that is unique among the hosts.
  [[nodiscard]] std::string short_name(int host) const;
  /// A rank's index among the ranks of its host, from 0.
  [[nodiscard]] int local_rank(int rank) const { return local_rank_.at(as_index(rank)); }

 private:
  std::vector<int> host_of_;
  std::vector<int> local_rank_;
  std::vector<std::vector<int>> ranks_of_;
  std::vector<std::string> names_;
};

}  // namespace ddl::topology
