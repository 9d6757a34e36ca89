#pragma once

#include <string>
#include <string_view>

#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl {

/// A preset ("ac922:4") or a file ("./cluster.json": a topology, or NCCL's XML of one host). A preset's name
/// goes before a file's. Throws `invalid_argument` for what is neither, and as the readers do.
topology::Topology topology_by_name(const std::string& name);

/// Writes what plans are chosen for to `options.save_topology` and `suffix`, if that names a place. A file
/// that cannot be written is a warning. For rank 0.
void save_topology(const ContextOptions& options, const topology::Topology& topology, std::string_view suffix,
                   Log& log);

}  // namespace ddl
