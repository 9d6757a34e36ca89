#pragma once

#include <mpi.h>

#include <memory>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl::mpi {

/// The engine's communicator with the same ranks, in the same order, as the MPI communicator. `world` holds
/// the ranks of `mpi_world`; returns null if `communicator` has others. Collective over `communicator`.
/// Throws `transport` if MPI fails, and as CommunicatorImpl::subgroup.
std::shared_ptr<collectives::CommunicatorImpl> subgroup_of(collectives::CommunicatorImpl& world,
                                                           MPI_Comm communicator,
                                                           MPI_Comm mpi_world = MPI_COMM_WORLD);

}  // namespace ddl::mpi
