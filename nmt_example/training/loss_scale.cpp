#include "nmt_example/training/loss_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"

namespace nmt {
namespace {

constexpr double least_scale = 1;
constexpr double backoff_factor = 2;
// Of log_max: decays of the means, the exponent that an overflow stands for and that gradients must stay
// below, and the deviations of a normal distribution that 99.9% of values stay below.
constexpr double mean_decay = 0.99, mean_square_decay = 0.999, overflow_exponent = 16, deviations = 3.09;

}  // namespace

LossScale::LossScale(const Options& options)
    : rule_(options.loss_scaling),
      largest_scale_(options.loss_scale),
      scale_(rule_ == LossScaling::constant || rule_ == LossScaling::backoff ? options.loss_scale : 1),
      window_(options.loss_scale_window) {}

void LossScale::end_step(bool overflow, double largest) {
  const std::int64_t step = step_++;
  switch (rule_) {
    case LossScaling::off:
    case LossScaling::constant:
      return;
    case LossScaling::backoff:
      if (overflow) {
        last_overflow_ = step;
        scale_ = std::max(least_scale, scale_ / backoff_factor);
      } else if ((step - last_overflow_) % window_ == 0) {
        scale_ = std::min(largest_scale_, scale_ * backoff_factor);
      }
      return;
    case LossScaling::log_max: {
      // Gradients of zero, as of a batch without words, say nothing.
      if (!overflow && largest == 0) return;
      const double x = overflow ? overflow_exponent : std::log2(largest);
      mean_ = mean_decay * mean_ + (1 - mean_decay) * x;
      mean_square_ = mean_square_decay * mean_square_ + (1 - mean_square_decay) * x * x;
      const auto steps = static_cast<double>(step_);
      const double mean = mean_ / (1 - std::pow(mean_decay, steps));
      const double mean_square = mean_square_ / (1 - std::pow(mean_square_decay, steps));
      const double deviation = std::sqrt(std::max(0.0, mean_square - mean * mean));
      scale_ = std::clamp(std::exp2(overflow_exponent - (mean + deviations * deviation)), least_scale,
                          largest_scale_);
      return;
    }
  }
}

std::string LossScale::state() const {
  if (rule_ == LossScaling::off || rule_ == LossScaling::constant) return {};
  const nlohmann::ordered_json json = {{"rule", name_of(rule_)}, {"scale", scale_},
                                       {"step", step_},          {"last_overflow", last_overflow_},
                                       {"mean", mean_},          {"mean_square", mean_square_}};
  return json.dump();
}

void LossScale::restore(std::string_view state) {
  if (state.empty()) return;
  try {
    const auto json = nlohmann::json::parse(state);
    if (json.at("rule").get<std::string>() != name_of(rule_)) return;
    json.at("scale").get_to(scale_);
    json.at("step").get_to(step_);
    json.at("last_overflow").get_to(last_overflow_);
    json.at("mean").get_to(mean_);
    json.at("mean_square").get_to(mean_square_);
  } catch (const nlohmann::json::exception& error) {
    throw ddl::Error(ddl::ErrorCode::corrupt_data,
                     fmt::format("the checkpoint's loss scale cannot be read: {}", error.what()));
  }
}

}  // namespace nmt
