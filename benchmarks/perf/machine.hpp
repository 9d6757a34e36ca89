#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/rank_map.hpp"

namespace perf {

/// The processor's name from /proc/cpuinfo, or "unknown".
std::string cpu_model();
/// The number of cores that this process may use.
int cores();
/// This library's version.
std::string version();

/// Measures the share of the cores' time that the hypervisor has taken, although there was work, since this
/// object was made: "steal" of /proc/stat, in hundredths of a second.
class StolenTime {
 public:
  StolenTime();
  /// The share, 0 to 1; none if the machine does not report it, or if fewer than `least_ticks` ticks of all
  /// cores together have passed.
  [[nodiscard]] std::optional<double> share(double least_ticks = 50) const;

 private:
  struct Ticks {
    double stolen = 0;
    double all = 0;
  };
  static std::optional<Ticks> now();
  std::optional<Ticks> start_;
};

/// The placement of ranks on hosts: "host" (host by host), "round_robin" or "mixed".
std::string placement_of(const ddl::topology::RankMap& map);
std::vector<int> ranks_per_host(const ddl::topology::RankMap& map);

}  // namespace perf
