#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace nmt {

/// Offset of the first byte that does not begin a well-formed UTF-8 sequence (RFC 3629: no overlong
/// forms, no surrogates, at most U+10FFFF), or nothing if all of `text` is well formed.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

}  // namespace nmt
