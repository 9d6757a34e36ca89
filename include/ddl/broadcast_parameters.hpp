#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {

/// One parameter on this rank.
struct Parameter {
  std::string name;
  std::span<float> values;
};

/// Gives every rank `root`'s values, so that all start from the same model.
/// Collective. Parameters that lie one after the other in memory on every rank, in the order given,
/// travel as one broadcast; a flat buffer of them all is the fastest. Not thread-safe.
/// Errors, the same on every rank and before any value is touched: `mismatch`, naming the first
/// parameter that differs in name or size and the ranks it differs on (or another `root`);
/// `invalid_argument` for a root that is no rank.
void broadcast_parameters(Context& context, const std::vector<Parameter>& parameters, int root = 0);

}  // namespace ddl
