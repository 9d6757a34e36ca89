#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ddl/topology/plan.hpp"

namespace ddl {

/// What DDL_OPTIONS says; empty where it says nothing.
struct DdlOptions {
  std::optional<topology::Mode> mode;
  std::string decomposition;  ///< "4x4"; whether it fits the job is known only when the ranks are.
  std::optional<int> debug_level;
  std::optional<int> dump_iterations;
};

/// Reads IBM's spelling: "-mode p:4x4 -dbg_level 2 -dump_iter 100". Throws `invalid_argument` naming the variable, its
/// text, what was found and what was expected: an unknown option, a value that is missing or wrong, an option
/// twice; an option of IBM's that this version does not have.
DdlOptions parse_ddl_options(std::string_view text);

}  // namespace ddl
