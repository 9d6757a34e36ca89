#include "nmt_example/model/encoder.hpp"

#include <fmt/format.h>

namespace nmt {
namespace {

std::string table_name(const ParameterSet& parameters) {
  return parameters.layout().contains("embedding/shared") ? "embedding/shared" : "embedding/encoder";
}

}  // namespace

Encoder::Encoder(const ParameterSet& parameters, const ModelShape& shape)
    : table_index_(parameters.layout().index_of(table_name(parameters))),
      table_(parameters.value(table_index_)),
      d_table_(parameters.gradient(table_index_)) {
  const int stack_count = shape.bidirectional ? 2 : 1;
  for (int s = 0; s < stack_count; ++s) {
    auto& stack = stacks_.emplace_back();
    for (int l = 0; l < shape.encoder_layers / stack_count; ++l) {
      const char* direction = stack_count == 1 ? "" : s == 0 ? "fw/" : "bw/";
      stack.emplace_back(parameters, fmt::format("encoder/{}lstm_{}", direction, l), s == 1,
                         shape.forget_bias, encoder_dropout_site(s, l));
    }
  }
  d_h_.resize(static_cast<std::size_t>(layers()));
  d_c_.resize(static_cast<std::size_t>(layers()));
}

const LstmLayer& Encoder::layer_at(int index) const {
  const auto stacks = static_cast<int>(stacks_.size());
  return stacks_[static_cast<std::size_t>(index % stacks)][static_cast<std::size_t>(index / stacks)];
}

void Encoder::plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training) {
  const std::int64_t units = stacks_[0][0].units();
  const std::int64_t rows = sentences * steps;
  embedded_ = arena.take(rows, units);
  memory_ = arena.take(rows, units * static_cast<std::int64_t>(stacks_.size()));
  for (std::size_t s = 0; s < stacks_.size(); ++s) {
    for (std::size_t l = 0; l < stacks_[s].size(); ++l) {
      const bool top = l + 1 == stacks_[s].size();
      stacks_[s][l].plan(
          arena, sentences, steps,
          top ? memory_.col_range(static_cast<std::int64_t>(s) * units, units) : arena.take(rows, units));
    }
  }
  if (!training) return;
  d_memory_ = arena.take(rows, memory_.cols);
  d_embedded_ = arena.take(rows, units);
  d_input_ = arena.take(rows, units);
  d_between_ = arena.take(rows, units);
  for (auto* states : {&d_h_, &d_c_}) {
    for (Tensor& state : *states) state = arena.take(sentences, units);
  }
}

void Encoder::forward(const StepContext& step, const Indices& ids, const Indices& lengths) {
  step.backend.embedding_forward(table_, ids, embedded_);
  for (auto& stack : stacks_) {
    Tensor input = embedded_;
    for (LstmLayer& layer : stack) {
      layer.forward(step, input, lengths);
      input = layer.output();
    }
  }
}

void Encoder::backward_layer(const StepContext& step, const Indices& lengths, std::size_t stack,
                             std::size_t layer) {
  const bool top = layer + 1 == stacks_[stack].size();
  const bool bottom = layer == 0;
  const bool first = stack + 1 == stacks_.size();  // backward goes through the last stack first
  const std::size_t state = layer * stacks_.size() + stack;
  const std::int64_t units = embedded_.cols;
  const Tensor d_output =
      top ? d_memory_.col_range(static_cast<std::int64_t>(stack) * units, units) : d_between_;
  const Tensor d_input = !bottom ? d_between_ : first ? d_embedded_ : d_input_;
  stacks_[stack][layer].backward(step, lengths, d_output, d_h_[state], d_c_[state], d_input);
  if (bottom && !first) step.backend.add(d_input_, d_embedded_);
}

}  // namespace nmt
