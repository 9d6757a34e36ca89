#pragma once

#include <vector>

#include "ddl/context.hpp"
#include "ddl/parameter.hpp"

namespace ddl {

/// Gives every rank `root`'s values, so that all start from the same model, and makes sure that they do: a
/// hash of the exact bits is compared over all ranks afterwards.
///
/// Just what is listed is broadcast. Models for evaluation or inference, which some ranks only may have, and
/// what is a rank's own (states of random generators, statistics of its data) are left out by not listing
/// them.
///
/// Collective. Parameters that lie one after the other in memory on every rank, in the order given,
/// travel as one broadcast; a flat buffer of them all is the fastest. The check reads every value once more
/// and all-reduces 16 bytes. Not thread-safe.
///
/// Errors, the same on every rank. Before any value is touched: `mismatch`, naming the first parameter that
/// differs in name, type or size and the ranks it differs on (or another `root`); `invalid_argument` for a
/// root that is no rank. Afterwards: `mismatch`, naming the first parameter whose bits differ and the ranks:
/// parameters of a rank overlap in memory, something writes to them, or the library has a defect.
void broadcast_parameters(const Context& context, const std::vector<Parameter>& parameters, int root = 0);

}  // namespace ddl
