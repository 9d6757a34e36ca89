#pragma once

#include <cstddef>

namespace ddl {

/// Converts a number that is not negative, such as an int that numbers a rank, node or link, to a container's
/// index.
template <typename Integer>
constexpr std::size_t as_index(Integer number) {
  return static_cast<std::size_t>(number);
}

}  // namespace ddl
