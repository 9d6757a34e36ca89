#pragma once

#include <span>
#include <string_view>

namespace ddl {

/// The one of `names` that needs the fewest insertions, deletions and replacements of characters to become
/// `name` (Levenshtein 1966), for messages about names that are unknown; the first of several; empty if
/// there are no names.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace ddl
