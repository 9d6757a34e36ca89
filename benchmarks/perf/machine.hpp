#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/rank_map.hpp"

namespace perf {

/// The processor's name, from /proc/cpuinfo; "unknown" if that does not say.
std::string cpu_model();
/// Cores that this process may use.
int cores();
/// This library's.
std::string version();

/// Of the time of the machine's cores, the part that they had work for since this was made while its
/// hypervisor let others run: /proc/stat's "steal", which counts in hundredths of a
/// second.
class StolenTime {
 public:
  StolenTime();
  /// 0 to 1; none if the machine does not say, or if less than `least_ticks` have passed, of all cores
  /// together.
  [[nodiscard]] std::optional<double> share(double least_ticks = 50) const;

 private:
  struct Ticks {
    double stolen = 0;
    double all = 0;
  };
  static std::optional<Ticks> now();
  std::optional<Ticks> start_;
};

/// How ranks lie on hosts: "host" (one host's after the other's), "round_robin" (dealt out), or "mixed".
std::string placement_of(const ddl::topology::RankMap& map);
std::vector<int> ranks_per_host(const ddl::topology::RankMap& map);

}  // namespace perf
