#include "nmt_example/training/loss_scale.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "nmt_example/options/json_text.hpp"

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
  scale = read_json(state, "the checkpoint's loss scale cannot be read", [&](const auto& json) {
    LossScale read = scale;
    if (json.at("rule").template get<std::string>() != name_of(scale.rule)) return read;
    json.at("scale").get_to(read.value);
    read.step = whole_number<std::int64_t>(json.at("step"));
    read.last_overflow = whole_number<std::int64_t>(json.at("last_overflow"));
    json.at("mean").get_to(read.mean);
    json.at("mean_square").get_to(read.mean_square);
    return read;
  });
}

}  // namespace nmt
