#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace nmt {

/// Offset of the first byte that does not begin a well-formed UTF-8 sequence (RFC 3629: no overlong
/// forms, no surrogates, at most U+10FFFF), or nothing if all of `text` is well formed.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

/// Foreign text for a message: at most 200 bytes, with '?' for control characters, which a terminal may take
/// for orders, and for what is not UTF-8.
std::string printable(std::string_view text);

}  // namespace nmt
