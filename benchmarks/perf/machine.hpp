#pragma once

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

/// How ranks lie on hosts: "host" (one host's after the other's), "round_robin" (dealt out), or "mixed".
std::string placement_of(const ddl::topology::RankMap& map);
std::vector<int> ranks_per_host(const ddl::topology::RankMap& map);

}  // namespace perf
