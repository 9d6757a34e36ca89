#include "ddl/learning_rate_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ddl/log.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

// In the order of the enumerations.
constexpr std::array<std::string_view, 3> rule_names = {"none", "linear", "square_root"};

std::string explanation(const LearningRateScalingOptions& options, int ranks, double factor) {
  const std::string reason =
      fmt::format("{} rank{}, global batch {} times as large", ranks, ranks == 1 ? "" : "s", ranks);
  if (options.rule == ScalingRule::none)
    return fmt::format("learning rate unchanged: scaling rule none ({})", reason);
  std::string text = fmt::format("learning rate times {:.6g}: scaling rule {} ({})", factor,
                                 rule_names[as_index(options.rule)], reason);
  if (options.ramp_steps > 0 && factor != 1)
    text += fmt::format(", growing from 1 over {} steps", options.ramp_steps);
  return text;
}

}  // namespace

double learning_rate_factor(ScalingRule rule, int ranks, std::uint64_t step, std::uint64_t ramp_steps) {
  const double full = rule == ScalingRule::linear        ? ranks
                      : rule == ScalingRule::square_root ? std::sqrt(static_cast<double>(ranks))
                                                         : 1;
  if (step >= ramp_steps) return full;
  return 1 + (full - 1) * (static_cast<double>(step) / static_cast<double>(ramp_steps));
}

LearningRateScaling::LearningRateScaling(const Context& context,
                                         std::function<double(std::uint64_t)> schedule,
                                         LearningRateScalingOptions options)
    : schedule_(std::move(schedule)),
      options_(options),
      ranks_(context.size()),
      factor_(learning_rate_factor(options.rule, context.size())),
      schedule_stride_(options.unit == ScheduleUnit::samples ? static_cast<std::uint64_t>(context.size())
                                                             : 1) {
  if (!schedule_) {
    throw Error(ErrorCode::invalid_argument,
                "LearningRateScaling: the schedule is empty; expected a function of the step");
  }
  const std::string text = explanation(options_, context.size(), factor_);
  if (factor_ != 1) {
    context.log().notice(text);  // the rate differs from the schedule's
  } else {
    context.log().info(text);
  }
  if (schedule_stride_ == 1) return;
  context.log().notice(
      fmt::format("schedule counted in samples: update s of {0} ranks takes the rate of update {0} s of one "
                  "worker, which has seen as many samples",
                  context.size()));
}

double LearningRateScaling::learning_rate(std::uint64_t step) const {
  return learning_rate_factor(options_.rule, ranks_, step, options_.ramp_steps) *
         schedule_(step * schedule_stride_);
}

}  // namespace ddl
