#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/calibrate.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// Reads a whole file, or standard input for "-". Throws `io`, and `corrupt_data` for more than 256 MiB.
std::string read_text(const std::string& path);

/// Replaces the file `path` once all is written, or writes to standard output for "-". Throws `io`.
void write_text(const std::string& path, const std::string& text);

/// The placement of ranks on hosts that are discovered or described.
struct Placement {
  int ranks = 0;  ///< On each host; 0: one per GPU, or one per core on CPUs.
  /// "cpu", "gpu", or "auto": GPUs if every host has one.
  std::string device = "auto";
};

/// The topology of this machine. `notes` receives what discovery could not find out.
topology::Topology this_machine(const Placement& placement, std::vector<std::string>& notes);

/// Loads a preset ("ac922:4"), a file ("./cluster.json", JSON or NCCL's XML), or standard input ("-"). A
/// preset takes precedence over a file of the same name. Throws UsageError if `name` is neither.
topology::Topology named_topology(const std::string& name, const Placement& placement);

/// Loads one topology file, or joins one NCCL XML or host description (`ddl-topo export this --host`) per
/// host. Throws as the readers do, and `invalid_argument` if the files are of different kinds.
topology::Topology import_files(std::span<const std::string> paths, const Placement& placement);

/// The answer of a host to `ddlrun`: one line of JSON with `ddl_check` (1, the format), `version` of this
/// library, `host` (its name), `identity` (equal only for names of the same host), `cpus` (the number of
/// logical CPUs) and `gpus` (their models, in the system's order). If requested, also `program`: its `path`
/// and `state` ("executable", or the problem), and `port`: its `number`, whether it is `free`, and if not the
/// `reason`. Takes as long as `discover_host`.
///
/// `program` is a path, or a name to search on PATH; `port` is a TCP port that a job wants to listen on.
/// Empty and 0 request nothing.
std::string host_check_json(const std::string& program, int port);

struct ProbeResult {
  std::shared_ptr<const topology::Topology> topology;  ///< Not calibrated.
  std::vector<topology::Measurement> measurements;
  std::vector<std::string> notes;
};

/// Measures the routes between the ranks of a job that mpirun started, or between threads otherwise. Returns
/// nothing on ranks other than 0. `ranks`: the number of threads; 0: one per core, from 2 to 8.
/// `keep_figures`: whether to keep the results in the cache for later jobs. Throws as Context does, and
/// UsageError if `ranks` is given under mpirun.
std::optional<ProbeResult> probe_ways(int ranks, bool keep_figures);

/// A table of the measured values and of those that plans use without measuring.
std::string probe_text(const ProbeResult& result);

/// A topology as text: each kind of host once as a tree of its nodes, the links outside the tree, the
/// network, and a matrix of routes between devices. Unless `whole_matrix`, a matrix of more than 16 devices,
/// or of more than 8 on several hosts, is cut to at most 16 devices of the first host and one of another.
std::string topology_text(const topology::Topology& topology, std::string_view title, bool whole_matrix);

/// A table of presets.
std::string presets_text();

}  // namespace ddl::tools
