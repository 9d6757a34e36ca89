#include <fmt/format.h>

#include "nmt_example/model/decoders.hpp"

namespace nmt {

PlainDecoder::PlainDecoder(const ParameterSet& parameters, const ModelShape& shape)
    : embedding_(parameters, shape), passes_state_(shape.passes_state()), forget_bias_(shape.forget_bias) {
  for (int l = 0; l < shape.decoder_layers; ++l) {
    layers_.emplace_back(parameters, fmt::format("decoder/lstm_{}", l), false, shape.forget_bias,
                         decoder_dropout_site(l));
    kernels_.push_back(parameters.value(layers_.back().kernel_index()));
    biases_.push_back(parameters.value(layers_.back().bias_index()));
  }
}

void PlainDecoder::plan(Arena& arena, std::int64_t sentences, std::int64_t /*source_steps*/,
                        std::int64_t target_steps, bool training) {
  const std::int64_t units = layers_.front().units();
  const std::int64_t rows = target_steps * sentences;
  embedded_ = arena.take(rows, units);
  for (LstmLayer& layer : layers_) layer.plan(arena, sentences, target_steps, arena.take(rows, units));
  if (!training) return;
  d_output_ = arena.take(rows, units);
  d_h_ = arena.take(sentences, units);
  d_c_ = arena.take(sentences, units);
}

void PlainDecoder::forward(const StepContext& step, Encoder& encoder, const Indices& /*source_lengths*/,
                           const Indices& ids) {
  step.backend.embedding_forward(embedding_.table, ids, embedded_);
  Tensor input = embedded_;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const int layer = static_cast<int>(l);
    layers_[l].forward(step, input, {}, passes_state_ ? encoder.final_h(layer) : Tensor(),
                       passes_state_ ? encoder.final_c(layer) : Tensor());
    input = layers_[l].output();
  }
}

void PlainDecoder::backward(const StepContext& step, Encoder& encoder, const Indices& /*source_lengths*/,
                            const Indices& ids, const ReadyFunction& ready) {
  Backend& backend = step.backend;
  backend.zero(encoder.d_memory());
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const Tensor d_h = passes_state_ ? encoder.d_final_h(static_cast<int>(l)) : d_h_;
    const Tensor d_c = passes_state_ ? encoder.d_final_c(static_cast<int>(l)) : d_c_;
    backend.zero(d_h);
    backend.zero(d_c);
    layers_[l].backward(step, {}, d_output_, d_h, d_c, d_output_);
    ready(layers_[l].bias_index());
    ready(layers_[l].kernel_index());
  }
  if (!passes_state_) zero_final_state_gradients(step, encoder);
  backend.embedding_backward(d_output_, ids, embedding_.d_table);
  if (!embedding_.shared) ready(embedding_.index);
}

void PlainDecoder::plan_search(Arena& arena, std::int64_t sentences, std::int64_t /*source_steps*/,
                               std::int64_t beam) {
  search_.plan(arena, layers_.size(), sentences * beam, layers_.front().units(), layers_.front().units());
}

void PlainDecoder::start_search(const StepContext& step, Encoder& encoder, const Indices& beam_rows) {
  search_.start(step, passes_state_ ? &encoder : nullptr, beam_rows);
}

void PlainDecoder::search_step(const StepContext& step, Encoder& /*encoder*/,
                               const Indices& /*source_lengths*/, const Indices& parents,
                               const Indices& ids) {
  Backend& backend = step.backend;
  search_.select(step, parents);
  const std::int64_t units = layers_.front().units();
  backend.embedding_forward(embedding_.table, ids, search_.input[0].col_range(0, units));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    search_.advance(step, l, kernels_[l], biases_[l], forget_bias_);
    if (l + 1 < layers_.size()) {
      backend.copy(search_.hidden(l), search_.input[l + 1].col_range(0, units));
    }
  }
}

Tensor PlainDecoder::search_output() const { return search_.hidden(layers_.size() - 1); }

}  // namespace nmt
