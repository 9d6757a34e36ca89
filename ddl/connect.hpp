#pragma once

#include <memory>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator_impl.hpp"
#include "ddl/context.hpp"

namespace ddl {

/// What every rank knows of every other before they are connected.
struct Neighbourhood {
  std::vector<std::string> host_ids;  ///< by rank
  bool crowded;                       ///< some machine holds more ranks than this rank may use cores
};

/// Collective. `host_id` empty: found from the machine.
Neighbourhood meet(collectives::Bootstrap& bootstrap, const std::string& host_id);

collectives::CommunicatorSettings communicator_settings(const ContextOptions& options, int rank,
                                                        const Neighbourhood& neighbourhood);

}  // namespace ddl
