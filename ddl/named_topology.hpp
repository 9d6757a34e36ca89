#pragma once

#include <string>

#include "ddl/topology/topology.hpp"

namespace ddl {

/// A preset ("ac922:4") or a file ("./cluster.json": a topology, or NCCL's XML of one host). A preset's name
/// goes before a file's. Throws `invalid_argument` for what is neither, and as the readers do.
topology::Topology topology_by_name(const std::string& name);

}  // namespace ddl
