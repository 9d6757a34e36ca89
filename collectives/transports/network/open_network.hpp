#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// What may carry messages between hosts (DDL_NETWORK).
enum class NetworkChoice {
  automatic,  ///< UCX if all ranks can, else MPI.
  ucx,
  mpi,
};

/// "auto", "ucx", "mpi".
const char* to_string(NetworkChoice choice) noexcept;

struct OpenedNetwork {
  std::unique_ptr<Network> network;
  std::string reason;  ///< Why it is not UCX though it might have been; empty otherwise.
};

/// Opens the same network on all ranks. Collective, with the same choice; each rank sends the next one a byte
/// to see whether that works, for 15 s at most. `make_mpi`, collective too, may be empty: there is no MPI.
/// Throws, on all ranks, `mismatch` for different choices and `transport` if what was chosen is not possible.
OpenedNetwork open_network(Bootstrap& bootstrap, NetworkChoice choice,
                           const std::function<std::unique_ptr<Network>()>& make_mpi);

}  // namespace ddl::collectives
