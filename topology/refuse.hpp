#pragma once

#include <fmt/format.h>

#include <utility>

#include "ddl/error.hpp"

namespace ddl {

/// Throws an error whose message says what was found, what was expected and what to do.
template <typename... Arguments>
[[noreturn]] void fail_with(ErrorCode code, fmt::format_string<Arguments...> message,
                            Arguments&&... arguments) {
  throw Error(code, fmt::format(message, std::forward<Arguments>(arguments)...));
}

namespace topology {

/// Throws `invalid_argument` with such a message.
template <typename... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> message, Arguments&&... arguments) {
  fail_with(ErrorCode::invalid_argument, message, std::forward<Arguments>(arguments)...);
}

}  // namespace topology
}  // namespace ddl
