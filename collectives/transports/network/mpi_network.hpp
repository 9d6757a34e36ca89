#pragma once

#include <mpi.h>

#include <memory>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// "CALL failed: what MPI says" as `transport`, unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

/// Messages through MPI; where there is no UCX, and for plans that ask for MPI. MPI gives no way to sleep
/// until something comes, and does not tell which rank has died. The destructor waits for what was sent, 10 s
/// at most.
///
/// `communicator` returns errors instead of ending the job, and outlives the network. Collective. Throws
/// `unsupported` if MPI's tags have fewer than 20 bits.
std::unique_ptr<Network> make_mpi_network(MPI_Comm communicator);

}  // namespace ddl::collectives
