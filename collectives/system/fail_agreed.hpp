#pragma once

#include "topology/refuse.hpp"

namespace ddl {

/// Throws an error with such a message, one that every rank throws alike.
template <typename... Arguments>
[[noreturn]] void fail_agreed(ErrorCode code, fmt::format_string<Arguments...> message,
                              Arguments&&... arguments) {
  throw Error(code, fmt::format(message, std::forward<Arguments>(arguments)...)).as_agreed();
}

}  // namespace ddl
