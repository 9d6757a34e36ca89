#pragma once

#include <span>
#include <string>
#include <vector>

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

}  // namespace ddl::tools
