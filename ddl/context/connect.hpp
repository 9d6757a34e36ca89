#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/communicator/communicator_impl.hpp"
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

using FindTopology = std::function<std::shared_ptr<const topology::Topology>()>;

/// Plans as the options want them. Throws `invalid_argument` for what does not fit `ranks`.
std::shared_ptr<collectives::PlanBook> plans_of(const ContextOptions& options, int ranks, FindTopology find);

/// The topology of ranks that are all in this process.
FindTopology in_process_topology(const ContextOptions& options, const topology::RankMap& map);

/// Throws `invalid_argument` for a deadline out of range.
void require_valid(const ContextOptions& options);

/// Memory and networks are still to be given. `crowded`: this rank's machine holds more ranks than they may
/// use cores.
collectives::EngineSettings engine_settings(int rank, topology::RankMap map, bool crowded);

/// The communicator of all ranks. `most_communicators`: in the whole job, as `collectives::Job` counts them.
std::shared_ptr<collectives::CommunicatorImpl> first_communicator(
    const ContextOptions& options, collectives::EngineSettings settings,
    std::shared_ptr<collectives::PlanBook> plans, int most_communicators);

}  // namespace ddl
