#pragma once

#include <mpi.h>

#include <memory>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl::mpi {

/// The engine's communicator of the same ranks as MPI's, in their order. `world` has the processes of
/// `mpi_world`; null if there are others. Collective over `communicator`. Throws `transport` if MPI fails,
/// and as `Communicator::subgroup`.
std::shared_ptr<collectives::CommunicatorImpl> subgroup_of(collectives::CommunicatorImpl& world,
                                                           MPI_Comm communicator,
                                                           MPI_Comm mpi_world = MPI_COMM_WORLD);

}  // namespace ddl::mpi
