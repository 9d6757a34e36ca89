#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

/// The numbers of which the ranks take the greatest to find out whether they all have the same `value`.
std::array<std::int64_t, 2> comparison_of(std::uint64_t value) noexcept;
/// Whether all had the same, from the greatest of each.
bool are_equal(const std::array<std::int64_t, 2>& greatest) noexcept;

/// One rank's program for the greatest of each of `count` elements on all ranks (with `ReduceOp::max`, whose
/// operands may come in any number of times): dissemination, ceil(log2 n) rounds. It needs no plan, so it can
/// be used before the ranks have agreed on one.
topology::Program greatest_program(int ranks, int rank, std::size_t count);

}  // namespace ddl::collectives
