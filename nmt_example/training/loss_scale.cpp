#include "nmt_example/training/loss_scale.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ddl/error.hpp"

namespace nmt {

LossScale make_loss_scale(const Options& options, ddl::DataType activations) {
  LossScale scale;
  scale.rule = options.loss_scaling;
  if (scale.rule == LossScaling::automatic)
    scale.rule = activations == ddl::DataType::f16 ? LossScaling::backoff : LossScaling::off;
  scale.largest = options.loss_scale;
  scale.window = options.loss_scale_window;
  if (scale.rule == LossScaling::constant || scale.rule == LossScaling::backoff) scale.value = scale.largest;
  return scale;
}

std::string state_of(const LossScale& scale) {
  if (scale.rule == LossScaling::off || scale.rule == LossScaling::constant) return {};
  const nlohmann::ordered_json json = {{"rule", name_of(scale.rule)}, {"scale", scale.value},
                                       {"step", scale.step},          {"last_overflow", scale.last_overflow},
                                       {"mean", scale.mean},          {"mean_square", scale.mean_square}};
  return json.dump();
}

void restore(LossScale& scale, std::string_view state) {
  if (state.empty()) return;
  try {
    const auto json = nlohmann::json::parse(state);
    if (json.at("rule").get<std::string>() != name_of(scale.rule)) return;
    json.at("scale").get_to(scale.value);
    json.at("step").get_to(scale.step);
    json.at("last_overflow").get_to(scale.last_overflow);
    json.at("mean").get_to(scale.mean);
    json.at("mean_square").get_to(scale.mean_square);
  } catch (const nlohmann::json::exception& error) {
    throw ddl::Error(ddl::ErrorCode::corrupt_data,
                     fmt::format("the checkpoint's loss scale cannot be read: {}", error.what()));
  }
}

}  // namespace nmt
