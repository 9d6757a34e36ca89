#include "ddl/drift_check.hpp"

#include <fmt/format.h>

#include <utility>

#include "ddl/agreement.hpp"
#include "ddl/same_parameters.hpp"

namespace ddl {

void check_same_parameters(Context& context, const std::vector<Parameter>& parameters) {
  require_same_bits(
      context, "check_same_parameters", parameters,
      "the ranks' models have drifted apart. Go on from a checkpoint of before, and look for what "
      "ranks do differently: an update that one skips, a random number, memory that is overwritten");
}

DriftCheck::DriftCheck(Context& context, std::vector<Parameter> parameters, std::uint64_t every_steps)
    : context_(context), parameters_(std::move(parameters)), every_steps_(every_steps) {
  require_same_entries(context_, "DriftCheck", "argument", {fmt::format("every {} steps", every_steps_)});
  require_same_shapes(context_, "DriftCheck", parameters_);
}

bool DriftCheck::is_due(std::uint64_t step) const noexcept {
  return every_steps_ != 0 && step % every_steps_ == 0;
}

bool DriftCheck::step(std::uint64_t step) {
  if (!is_due(step)) return false;
  check_same_parameters(context_, parameters_);
  return true;
}

}  // namespace ddl
