#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// The network between hosts (DDL_NETWORK).
enum class NetworkChoice {
  automatic,  ///< UCX if it works on all ranks, else MPI.
  ucx,
  mpi,
};

const char* to_string(NetworkChoice choice) noexcept;

struct OpenedNetwork {
  std::unique_ptr<Network> network;
  std::string reason;  ///< Why UCX is not used although the choice allows it; empty otherwise.
};

/// Opens the same network on all ranks. Collective, with the same choice on all ranks. Each rank tests UCX by
/// sending the next one a byte, for at most 15 s. `make_mpi` is collective, and empty if there is no MPI.
/// Throws on all ranks: `mismatch` for different choices, and `transport` if the chosen network does not
/// work.
OpenedNetwork open_network(Bootstrap& bootstrap, NetworkChoice choice,
                           const std::function<std::unique_ptr<Network>()>& make_mpi);

}  // namespace ddl::collectives
