#pragma once

#include <string>
#include <string_view>

#include "ddl/data_type.hpp"
#include "nmt_example/backend/step_rules.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// As the options say, before the first step.
LossScale make_loss_scale(const Options& options, ddl::DataType activations);

/// For a checkpoint: JSON; empty if nothing changes from step to step.
[[nodiscard]] std::string state_of(const LossScale& scale);
/// Continues as `state` says. An empty one, or one of another rule, changes nothing. Throws `corrupt_data`.
void restore(LossScale& scale, std::string_view state);

}  // namespace nmt
