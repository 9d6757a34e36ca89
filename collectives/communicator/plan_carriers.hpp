#pragma once

#include <string>
#include <vector>

#include "ddl/topology/plan.hpp"

namespace ddl::collectives {

/// What of a plan's carriers is not what its bytes go through here, with the reason; for people.
std::vector<std::string> carrier_notes(const topology::Plan& plan, bool over_mpi);

}  // namespace ddl::collectives
