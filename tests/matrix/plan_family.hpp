#pragma once

#include <vector>

#include "ddl/context.hpp"
#include "matrix/case.hpp"

namespace matrix {

/// Whether a collective among so many ranks can be done in a family's way.
bool has_plan(Family family, ddl::topology::Collective collective, int ranks);

/// What a context of the family, over the transport, is made with.
ddl::ContextOptions options_of(Family family, Transport transport, int rank, int ranks);

/// The host on which a rank pretends to be.
std::string host_of(Transport transport, int rank, int ranks);

}  // namespace matrix
