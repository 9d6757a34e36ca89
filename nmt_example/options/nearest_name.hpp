#pragma once

#include <span>
#include <string_view>

namespace nmt {

/// The one of `names` that needs the fewest insertions, deletions and replacements to become `name`
/// (Levenshtein 1966). There must be one.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace nmt
