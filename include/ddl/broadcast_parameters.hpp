#pragma once

#include <vector>

#include "ddl/context.hpp"
#include "ddl/parameter.hpp"

namespace ddl {

/// Copies `root`'s `values` of all `parameters` to every rank, so that all ranks start from the same model,
/// and then verifies by a hash that all ranks have the same bits.
///
/// Only the listed parameters are broadcast. Leave out models for evaluation or inference that only some
/// ranks have, and data that belong to one rank (states of random generators, statistics of its data).
///
/// Collective; not thread-safe. Cost: parameters that are adjacent in memory on every rank, in the given
/// order and of one type, travel in one broadcast, so one flat buffer is the fastest. The verification reads
/// every value once more and all-reduces 16 bytes.
///
/// Errors, the same on every rank. Before any value is changed: `mismatch` if names, types, sizes or `root`
/// differ, with the first parameter that does and its ranks; `invalid_argument` for a `root` that is no rank.
/// Afterwards: `mismatch`, with the first parameter whose bits differ and its ranks, if parameters of a rank
/// overlap in memory, if something writes to them meanwhile, or by a defect of the library.
void broadcast_parameters(const Context& context, const std::vector<Parameter>& parameters, int root = 0);

}  // namespace ddl
