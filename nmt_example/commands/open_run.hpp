#pragma once

#include <string>
#include <string_view>

#include "ddl/context.hpp"
#include "nmt_example/training/saved_run.hpp"

namespace nmt {

/// Opens a checkpoint, or the newest in a directory of some. `flag` is the one that gives the path, for
/// messages; it may be empty. Collective; throws `io` if there is none.
SavedRun open_run(ddl::Context& context, std::string_view flag, const std::string& path);

}  // namespace nmt
