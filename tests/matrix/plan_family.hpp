#pragma once

#include <vector>

#include "ddl/context.hpp"
#include "matrix/case.hpp"

namespace matrix {

/// Whether the family has a plan for this collective and number of ranks.
bool has_plan(Family family, ddl::topology::Collective collective, int ranks);

/// The options of a context for the family and the transport.
ddl::ContextOptions options_of(Family family, Transport transport, int rank, int ranks);

/// The name of a rank's emulated host.
std::string host_of(Transport transport, int rank, int ranks);

}  // namespace matrix
