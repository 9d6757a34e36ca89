#pragma once

#include <string_view>

namespace nmt {

/// The known flag whose name needs the fewest insertions, deletions and replacements to become `name`
/// (Levenshtein 1966); tensorflow/nmt's flags count as known.
std::string_view nearest_flag_name(std::string_view name);

}  // namespace nmt
