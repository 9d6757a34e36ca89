#pragma once

#include <cstddef>

namespace ddl::topology {

/// Ranks, nodes and links are ints, which containers take as std::size_t. For numbers that are not negative.
template <typename Integer>
constexpr std::size_t as_index(Integer number) {
  return static_cast<std::size_t>(number);
}

}  // namespace ddl::topology
