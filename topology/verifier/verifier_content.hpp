#pragma once

#include <string>
#include <vector>

#include "topology/verifier/verifier_steps.hpp"
#include "topology/verifier/verifier_streams.hpp"

namespace ddl::topology::verification {

/// Runs matched steps on symbols, in an order that `order_steps` gave, and looks at what each rank ends with.
/// Returns what is wrong, or nothing.
std::string check_content(const StepNumbers& steps, const Streams& streams, const std::vector<StepId>& order);

}  // namespace ddl::topology::verification
