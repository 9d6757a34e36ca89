#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/context.hpp"

namespace ddl {

/// What every rank knows of every other before they are connected.
struct Neighbourhood {
  std::vector<std::string> host_ids;  ///< by rank
  bool crowded;                       ///< some machine holds more ranks than this rank may use cores
};

/// Collective. `host_id` empty: found from the machine.
Neighbourhood meet(collectives::Bootstrap& bootstrap, const std::string& host_id);

using FindTopology = std::function<std::shared_ptr<const topology::Topology>()>;

/// Plans as the options want them. Throws `invalid_argument` for what does not fit `ranks`.
std::shared_ptr<collectives::PlanBook> plans_of(const ContextOptions& options, int ranks, FindTopology find);

/// The topology of ranks that are all in this process.
FindTopology in_process_topology(const ContextOptions& options, const topology::RankMap& map);

/// Without plans. Throws `invalid_argument` for a deadline out of range.
collectives::CommunicatorSettings communicator_settings(const ContextOptions& options, int rank,
                                                        const Neighbourhood& neighbourhood);

}  // namespace ddl
