#pragma once

#include <string>

#include "ddl/context.hpp"
#include "matrix/case.hpp"

namespace matrix {

/// This rank's part of a case, in a context that was made for it. Returns what is wrong with this rank's
/// result; empty if nothing is. Collective. `split` must be a communicator of all ranks in reverse for the
/// family of that name. Throws what the collective throws.
std::string run_case(const Case& one, ddl::Context& context, ddl::Communicator& communicator);

}  // namespace matrix
