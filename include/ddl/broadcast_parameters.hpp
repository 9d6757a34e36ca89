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
/// Collective; one broadcast per parameter. Throws `mismatch`, naming the first parameter that
/// differs in name or size and the ranks it differs on, before any value is touched.
void broadcast_parameters(Context& context, const std::vector<Parameter>& parameters, int root = 0);

}  // namespace ddl
