#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace nmt {

/// Bytes of the white space (as defined by Unicode and Python's str.split) at the start of UTF-8 text, or 0.
std::size_t white_space_at(std::string_view text);

/// The text without white space at both ends.
std::string_view stripped(std::string_view text);

/// The parts between single blanks, as Python's text.split(" "): between two blanks is an empty part, and
/// text without a blank is one part, even if it is empty.
std::vector<std::string_view> split_at_each_blank(std::string_view text);

}  // namespace nmt
