#include "nmt_example/model/shape.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"

namespace nmt {
namespace {

void add(ParameterLayout& layout, std::string name, std::int64_t rows, std::int64_t cols,
         Initializer initializer = Initializer::weights) {
  layout.parameters.push_back({std::move(name), rows, cols, initializer, layout.size});
  layout.size += rows * cols;
}

void add_lstm(ParameterLayout& layout, const std::string& name, std::int64_t input, std::int64_t units) {
  add(layout, name + "/kernel", input + units, 4 * units);
  add(layout, name + "/bias", 1, 4 * units, Initializer::zero);
}

std::string with_separators(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::int64_t at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace

std::size_t ParameterLayout::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name == name) return i;
  }
  throw ddl::Error(ddl::ErrorCode::internal, "the model has no parameter named " + name);
}

bool ParameterLayout::contains(const std::string& name) const noexcept {
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
}

ParameterLayout parameter_layout(const ModelShape& shape) {
  ParameterLayout layout;
  const std::int64_t units = shape.units;
  if (shape.share_vocabulary) {
    add(layout, "embedding/shared", shape.source_vocabulary, units);
  } else {
    add(layout, "embedding/encoder", shape.source_vocabulary, units);
  }
  if (shape.bidirectional) {
    for (const char* direction : {"fw", "bw"}) {
      for (int layer = 0; layer < shape.encoder_layers / 2; ++layer) {
        add_lstm(layout, fmt::format("encoder/{}/lstm_{}", direction, layer), units, units);
      }
    }
  } else {
    for (int layer = 0; layer < shape.encoder_layers; ++layer) {
      add_lstm(layout, fmt::format("encoder/lstm_{}", layer), units, units);
    }
  }
  if (shape.has_attention()) add(layout, "attention/memory_kernel", shape.memory_depth(), units);
  if (!shape.share_vocabulary) add(layout, "embedding/decoder", shape.target_vocabulary, units);
  for (int layer = 0; layer < shape.decoder_layers; ++layer) {
    const bool input_feeding = layer == 0 && shape.has_attention();
    add_lstm(layout, fmt::format("decoder/lstm_{}", layer), input_feeding ? 2 * units : units, units);
  }
  if (shape.has_attention()) {
    add(layout, "attention/output_kernel", units + shape.memory_depth(), units);
  }
  add(layout, "projection/kernel", units, shape.target_vocabulary);
  if (shape.attention == AttentionKind::scaled_luong) add(layout, "attention/scale", 1, 1, Initializer::one);
  return layout;
}

std::string describe(const ParameterLayout& layout) {
  std::size_t width = 9;
  for (const ParameterSpec& parameter : layout.parameters) width = std::max(width, parameter.name.size());
  std::string text =
      fmt::format("{:<{}}  {:>15}  {:>13}  {:>6}\n", "parameter", width, "shape", "elements", "share");
  for (const ParameterSpec& parameter : layout.parameters) {
    text +=
        fmt::format("{:<{}}  {:>15}  {:>13}  {:>5.1f}%\n", parameter.name, width,
                    fmt::format("{} x {}", parameter.rows, parameter.cols), with_separators(parameter.size()),
                    100.0 * static_cast<double>(parameter.size()) / static_cast<double>(layout.size));
  }
  text += fmt::format("parameters: {}\ngradient bytes per step: {} (fp32)\n", with_separators(layout.size),
                      with_separators(layout.size * 4));
  return text;
}

}  // namespace nmt
