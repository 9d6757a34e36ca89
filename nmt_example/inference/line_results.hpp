#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ddl/context.hpp"

namespace nmt {

/// The results of `lines` lines that ranks share, `each` of a line: rank r has those of lines r, r + ranks,
/// ... in `joined`, with a line feed after each. Every rank gets all, in the order of lines. Collective.
std::vector<std::string> results_of_ranks(ddl::Context& context, const std::string& joined, std::size_t lines,
                                          std::size_t each = 1);

}  // namespace nmt
