#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/context.hpp"
#include "ddl/context/process_bootstrap.hpp"
#include "ddl/log.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl {

/// The topology of a preset ("ac922:4"); nothing if `name` is that of a file. Throws `invalid_argument`, with
/// a text that begins with `what`, if it is neither.
std::optional<topology::Topology> topology_of_preset(std::string_view what, const std::string& name);
/// The topology of a preset ("ac922:4") or of a file ("./cluster.json": a topology, or NCCL's XML of one
/// host). A preset takes precedence over a file of the same name. Throws `invalid_argument` if `name` is
/// neither, and as the readers of files do.
topology::Topology topology_by_name(const std::string& name);

/// Writes `topology` to the file named `options.save_topology` + `suffix`, unless the option is empty. A file
/// that cannot be written causes a warning. For rank 0.
void save_topology(const ContextOptions& options, const topology::Topology& topology, std::string_view suffix,
                   Log& log);

struct OpenedNetwork {
  std::unique_ptr<collectives::Network> network;
  std::string reason;  ///< Why UCX is not used although it may be; empty otherwise.
};

/// Opens the same network on all ranks. Collective, with the same `use` on all ranks. Each rank tests UCX by
/// sending the next one a byte, for at most 15 s. Throws `transport`, on all ranks, if the network that the
/// user has chosen does not work, and as `make_mpi_network`.
OpenedNetwork open_network(ProcessBootstrap& bootstrap, NetworkUse use);

using FindTopology = std::function<std::shared_ptr<const topology::Topology>()>;

/// A plan book with the restrictions of the options. Throws `invalid_argument` for options that do not fit
/// `ranks`.
std::shared_ptr<collectives::PlanBook> plans_of(const ContextOptions& options, int ranks, FindTopology find);

/// Finds the topology of ranks that are all in this process.
FindTopology in_process_topology(const ContextOptions& options, const topology::RankMap& map);

/// Throws `invalid_argument` for a deadline out of range.
void require_valid(const ContextOptions& options);

/// Settings without memory and networks, which the caller adds. `masks`: `usable_cores` of each rank of this
/// machine; waits spin for as long as there are cores for it.
collectives::EngineSettings engine_settings(int rank, topology::RankMap map,
                                            const std::vector<std::string>& masks);

/// The communicator of all ranks. `most_communicators`: the limit for the job, as `collectives::Job` counts
/// them.
std::shared_ptr<collectives::CommunicatorImpl> first_communicator(
    const ContextOptions& options, collectives::EngineSettings settings,
    std::shared_ptr<collectives::PlanBook> plans, int most_communicators);

}  // namespace ddl
