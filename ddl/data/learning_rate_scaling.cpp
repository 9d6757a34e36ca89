#include "ddl/learning_rate_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/log.hpp"

namespace ddl {
namespace {

double full_factor(ScalingRule rule, int ranks) {
  switch (rule) {
    case ScalingRule::none:
      return 1;
    case ScalingRule::linear:
      return ranks;
    case ScalingRule::square_root:
      return std::sqrt(static_cast<double>(ranks));
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("LearningRateScaling: {} is no scaling rule; expected none, linear or square_root",
                          static_cast<int>(rule)));
}

std::uint64_t schedule_stride(ScheduleUnit unit, int ranks) {
  switch (unit) {
    case ScheduleUnit::updates:
      return 1;
    case ScheduleUnit::samples:
      return static_cast<std::uint64_t>(ranks);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("LearningRateScaling: {} is no schedule unit; expected updates or samples",
                          static_cast<int>(unit)));
}

std::string explanation(const LearningRateScalingOptions& options, int ranks, double factor) {
  const std::string reason =
      fmt::format("{} rank{}, global batch {} times as large", ranks, ranks == 1 ? "" : "s", ranks);
  if (options.rule == ScalingRule::none)
    return fmt::format("learning rate unchanged: scaling rule none ({})", reason);
  std::string text = fmt::format("learning rate times {:.6g}: scaling rule {} ({})", factor,
                                 options.rule == ScalingRule::linear ? "linear" : "square_root", reason);
  if (options.ramp_steps > 0 && factor != 1)
    text += fmt::format(", growing from 1 over {} steps", options.ramp_steps);
  return text;
}

}  // namespace

LearningRateScaling::LearningRateScaling(Context& context, std::function<double(std::uint64_t)> schedule,
                                         LearningRateScalingOptions options)
    : schedule_(std::move(schedule)),
      options_(options),
      factor_(full_factor(options.rule, context.size())),
      schedule_stride_(schedule_stride(options.unit, context.size())) {
  if (!schedule_) {
    throw Error(ErrorCode::invalid_argument,
                "LearningRateScaling: the schedule is empty; expected a function of the step");
  }
  const std::string text = explanation(options_, context.size(), factor_);
  if (factor_ != 1) {
    context.log().notice(text);  // it is not what was asked for
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
  double factor = factor_;
  if (step < options_.ramp_steps) {
    factor = 1 + (factor_ - 1) * (static_cast<double>(step) / static_cast<double>(options_.ramp_steps));
  }
  return factor * schedule_(step * schedule_stride_);
}

ScalingRule parse_scaling_rule(const std::string& name) {
  if (name == "none") return ScalingRule::none;
  if (name == "linear") return ScalingRule::linear;
  if (name == "square_root") return ScalingRule::square_root;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' is no scaling rule; expected none, linear or square_root", name));
}

ScheduleUnit parse_schedule_unit(const std::string& name) {
  if (name == "updates") return ScheduleUnit::updates;
  if (name == "samples") return ScheduleUnit::samples;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' is no schedule unit; expected updates or samples", name));
}

}  // namespace ddl
