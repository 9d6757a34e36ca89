#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/calibrate.hpp"

namespace ddl::tools {

struct ProbeRequest {
  int ranks = 0;     ///< Threads, where mpirun has not started this process; 0: one a core, 2 to 8.
  bool keep = true;  ///< In the cache, for jobs that follow.
};

struct ProbeResult {
  std::shared_ptr<const topology::Topology> topology;  ///< As discovered.
  std::vector<topology::Measurement> measurements;
  std::vector<std::string> notes;
};

/// Measures the ways between the ranks of the job that mpirun started, or between threads. Nothing on ranks
/// other than 0. Throws as `Context` does; UsageError if a number of ranks is given under mpirun.
std::optional<ProbeResult> probe_ways(const ProbeRequest& request);

/// A table: what was measured, and what plans would count on otherwise.
std::string probe_text(const ProbeResult& result);

}  // namespace ddl::tools
