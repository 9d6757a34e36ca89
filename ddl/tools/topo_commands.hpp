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

/// A whole file, or standard input if it is "-". Throws `io`; `corrupt_data` if it has over 256 MiB.
std::string read_text(const std::string& path);

/// To a file that takes the place of `path` when it is complete, or to standard output if it is "-". Throws
/// `io`.
void write_text(const std::string& path, const std::string& text);

/// How ranks are put on a machine that is discovered or described.
struct Placement {
  int ranks = 0;  ///< On each host; 0: one on each GPU, or on each core if there are none.
  /// "cpu", "gpu", or "auto": GPUs if every host has one.
  std::string device = "auto";
};

/// This machine. `notes` gets what discovery could not find out.
topology::Topology this_machine(const Placement& placement, std::vector<std::string>& notes);

/// A preset ("ac922:4"), a file ("./cluster.json", JSON or NCCL's XML), or standard input ("-"). A preset's
/// name goes before a file's. Throws UsageError for what is neither.
topology::Topology named_topology(const std::string& name, const Placement& placement);

/// One file of a topology, or of each host an NCCL XML or a host description (`ddl-topo export this --host`).
/// Throws as the readers do; `invalid_argument` if the files do not go together.
topology::Topology import_files(std::span<const std::string> paths, const Placement& placement);

/// What `ddlrun` asks each host of a job: one line of JSON with `ddl_check` (1, the format), `version` of
/// this library, `host` (its name), `identity` (equal only for names of the same host), `cpus` (logical ones
/// that processes may use) and `gpus` (their models, in the system's order). If asked for, also `program`:
/// its `path` and `state` ("executable", or what is wrong with it), and `port`: its `number`, whether it is
/// `free`, and if not the `reason`. Takes as long as `discover_host`.
///
/// `program` is a path, or a name to look for on PATH; `port` is a TCP port that a job wants to listen on.
/// Empty and 0: not asked for.
std::string host_check_json(const std::string& program, int port);

/// Every option of a job: its value and default, where the value comes from, and how it is given. For people.
std::string option_list_text();
/// An array of objects.
std::string option_list_json();

struct ProbeResult {
  std::shared_ptr<const topology::Topology> topology;  ///< As discovered.
  std::vector<topology::Measurement> measurements;
  std::vector<std::string> notes;
};

/// Measures the ways between the ranks of the job that mpirun started, or between threads. Nothing on ranks
/// other than 0. Throws as `Context` does; UsageError if a number of ranks is given under mpirun.
/// `ranks` are threads, where mpirun has not started this process; 0: one a core, 2 to 8. `keep_figures`: in
/// the cache, for jobs that follow.
std::optional<ProbeResult> probe_ways(int ranks, bool keep_figures);

/// A table: what was measured, and what plans would count on otherwise.
std::string probe_text(const ProbeResult& result);

/// A topology for people: each kind of host once as a tree of what hangs on what, the links beside that
/// tree, the network, and a matrix from device to device. Unless `whole_matrix`, a matrix of over 16 devices,
/// or 8 on several hosts, is cut to those of the first host and one of another.
std::string topology_text(const topology::Topology& topology, std::string_view title, bool whole_matrix);

/// A table of presets.
std::string presets_text();

}  // namespace ddl::tools
