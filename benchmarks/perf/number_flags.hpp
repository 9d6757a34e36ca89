#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace perf {

/// A number that a flag sets.
struct NumberFlag {
  std::size_t* value;
  std::size_t least = 1;
};

/// Reads "--name value" pairs: those of `numbers`, and --json, a file's name. Throws `invalid_argument` with
/// what was found and what was expected.
void parse_number_flags(std::span<const std::string_view> words,
                        const std::map<std::string_view, NumberFlag>& numbers, std::string& json);

}  // namespace perf
