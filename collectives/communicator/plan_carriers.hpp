#pragma once

#include <string>
#include <vector>

#include "ddl/topology/plan.hpp"

namespace ddl::collectives {

/// Whether all of a plan's bytes are to go through MPI, those between ranks that share memory too.
bool wants_mpi_alone(const topology::Plan& plan);

/// What of a plan's carriers is not what its bytes go through here, with the reason; for people.
std::vector<std::string> carrier_notes(const topology::Plan& plan, bool over_mpi);

}  // namespace ddl::collectives
