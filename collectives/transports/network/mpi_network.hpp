#pragma once

#include <mpi.h>

#include <memory>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// Throws `transport` with "CALL failed: " and MPI's text, unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

/// An intracommunicator of the same ranks, which returns errors instead of aborting. Collective. After an
/// MPI_Comm_dup, Open MPI 4.1 sometimes does not return from a program's MPI_Dist_graph_create, so this makes
/// it in another way. Throws `transport`.
MPI_Comm duplicate_of(MPI_Comm communicator);

/// Messages through MPI: for builds or jobs without UCX, and for plans that ask for MPI. MPI offers no way to
/// sleep until a message arrives, and does not tell which rank has died. The destructor waits for pending
/// sends, for at most 10 s.
///
/// `communicator` must outlive the network. Collective. Throws
/// `unsupported` if MPI's tags have fewer than 20 bits.
std::unique_ptr<Network> make_mpi_network(MPI_Comm communicator);

}  // namespace ddl::collectives
