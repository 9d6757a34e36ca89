#include <fmt/format.h>

#include "nmt_example/model/decoders.hpp"

namespace nmt {

AttentionDecoder::AttentionDecoder(const ParameterSet& parameters, const ModelShape& shape)
    : units_(shape.units),
      depth_(shape.memory_depth()),
      output_attention_(shape.output_attention),
      passes_state_(shape.passes_state()),
      forget_bias_(shape.forget_bias),
      embedding_(parameters, shape),
      memory_kernel_index_(parameters.layout().index_of("attention/memory_kernel")),
      output_kernel_index_(parameters.layout().index_of("attention/output_kernel")),
      memory_kernel_(parameters.value(memory_kernel_index_)),
      d_memory_kernel_(parameters.gradient(memory_kernel_index_)),
      output_kernel_(parameters.value(output_kernel_index_)),
      d_output_kernel_(parameters.gradient(output_kernel_index_)) {
  for (int l = 0; l < shape.decoder_layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.kernel_index = parameters.layout().index_of(fmt::format("decoder/lstm_{}/kernel", l));
    layer.bias_index = parameters.layout().index_of(fmt::format("decoder/lstm_{}/bias", l));
    layer.kernel = parameters.value(layer.kernel_index);
    layer.bias = parameters.value(layer.bias_index);
    layer.d_kernel = parameters.gradient(layer.kernel_index);
    layer.d_bias = parameters.gradient(layer.bias_index);
  }
  if (shape.attention == AttentionKind::scaled_luong) {
    scale_index_ = parameters.layout().index_of("attention/scale");
    scale_ = parameters.value(scale_index_);
    d_scale_ = parameters.gradient(scale_index_);
  }
}

void AttentionDecoder::plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                            std::int64_t target_steps, bool training) {
  sentences_ = sentences;
  source_steps_ = source_steps;
  target_steps_ = target_steps;
  const std::int64_t rows = target_steps * sentences;
  embedded_ = arena.take(rows, units_);
  keys_ = arena.take(source_steps * sentences, units_);
  for (Layer& layer : layers_) {
    layer.input = arena.take(rows + sentences, 2 * units_);
    layer.gates = arena.take(rows, 4 * units_);
    layer.cell = arena.take(rows + sentences, units_);
    layer.tanh_c = arena.take(rows, units_);
    if (training) {
      layer.d_input = arena.take(sentences, 2 * units_);
      layer.d_cell = arena.take(sentences, units_);
    }
  }
  joined_ = arena.take(rows, units_ + depth_);
  weights_ = arena.take(rows, source_steps);
  attention_ = arena.take(rows, units_);
  if (!training) return;
  d_embedded_ = arena.take(rows, units_);
  d_keys_ = arena.take(source_steps * sentences, units_);
  d_joined_ = arena.take(rows, units_ + depth_);
  d_scores_ = arena.take(rows, source_steps);
  d_output_ = arena.take(rows, units_);
  d_attention_ = output_attention_ ? d_output_ : arena.take(rows, units_);
  d_query_ = arena.take(sentences, units_);
  d_below_ = arena.take(sentences, units_);
}

Tensor AttentionDecoder::output() const { return output_attention_ ? attention_ : left(joined_); }

void AttentionDecoder::forward(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                               const Indices& ids) {
  Backend& backend = step.backend;
  const AttentionShape shape{sentences_, source_steps_, 1};
  Layer& bottom = layers_.front();
  backend.gemm(Transpose::no, Transpose::no, encoder.memory(), memory_kernel_, false, keys_);
  backend.embedding_forward(embedding_.table, ids, embedded_);
  step.drop(embedded_, embedded_, decoder_dropout_site(0));
  backend.gemm(Transpose::no, Transpose::no, embedded_, bottom.kernel.row_range(0, units_), false,
               bottom.gates);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Tensor h = right(slot(layers_[l].input, 0));
    const Tensor c = slot(layers_[l].cell, 0);
    if (passes_state_) {
      backend.copy(encoder.final_h(static_cast<int>(l)), h);
      backend.copy(encoder.final_c(static_cast<int>(l)), c);
    } else {
      backend.zero(h);
      backend.zero(c);
    }
  }
  backend.zero(left(slot(bottom.input, 0)));
  for (std::int64_t t = 0; t < target_steps_; ++t) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      Layer& layer = layers_[l];
      const Tensor h = right(slot(layer.input, t + 1));
      const bool top = l + 1 == layers_.size();
      backend.gemm(Transpose::no, Transpose::no, slot(layer.input, t), step_kernel(l, layer.kernel), l == 0,
                   slot(layer.gates, t));
      backend.lstm_cell_forward({.gates = slot(layer.gates, t),
                                 .bias = layer.bias,
                                 .c_prev = slot(layer.cell, t),
                                 .h_prev = right(slot(layer.input, t)),
                                 .c = slot(layer.cell, t + 1),
                                 .h = h,
                                 .tanh_c = slot(layer.tanh_c, t),
                                 .output = top ? left(slot(joined_, t)) : Tensor(),
                                 .lengths = {},
                                 .step = t,
                                 .forget_bias = forget_bias_});
      if (!top)
        step.drop(h, left(slot(layers_[l + 1].input, t)), decoder_dropout_site(static_cast<int>(l) + 1), t);
    }
    const Tensor joined = slot(joined_, t);
    backend.attention_forward(shape, left(joined), keys_, encoder.memory(), source_lengths, scale_,
                              slot(weights_, t), right(joined));
    backend.gemm(Transpose::no, Transpose::no, joined, output_kernel_, false, slot(attention_, t));
    step.drop(slot(attention_, t), left(slot(bottom.input, t + 1)), decoder_dropout_site(0), t + 1,
              fed_column());
  }
}

void AttentionDecoder::backward(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                                const Indices& ids, const ReadyFunction& ready) {
  Backend& backend = step.backend;
  const AttentionShape shape{sentences_, source_steps_, 1};
  const std::int64_t rows = target_steps_ * sentences_;
  if (!output_attention_) backend.zero(d_attention_);
  for (Layer& layer : layers_) {
    backend.zero(layer.d_input);
    backend.zero(layer.d_cell);
  }
  for (std::int64_t t = target_steps_ - 1; t >= 0; --t) {
    const Tensor d_attention = slot(d_attention_, t);
    if (t + 1 < target_steps_) {
      const Tensor fed = left(layers_.front().d_input);
      step.drop(fed, fed, decoder_dropout_site(0), t + 1, fed_column());
      backend.add(fed, d_attention);
    }
    const Tensor d_joined = slot(d_joined_, t);
    backend.gemm(Transpose::no, Transpose::yes, d_attention, output_kernel_, false, d_joined);
    backend.attention_backward(shape, keys_, encoder.memory(), source_lengths, scale_, slot(weights_, t),
                               right(d_joined), slot(d_scores_, t), d_query_);
    backend.add(d_query_, left(d_joined));
    if (!output_attention_) backend.add(slot(d_output_, t), left(d_joined));
    Tensor d_above = left(d_joined);
    for (std::size_t l = layers_.size(); l-- > 0;) {
      Layer& layer = layers_[l];
      backend.lstm_cell_backward({.gates = slot(layer.gates, t),
                                  .c_prev = slot(layer.cell, t),
                                  .tanh_c = slot(layer.tanh_c, t),
                                  .d_output = d_above,
                                  .d_h = right(layer.d_input),
                                  .d_h_prev = {},
                                  .d_c = layer.d_cell,
                                  .lengths = {},
                                  .step = t});
      backend.gemm(Transpose::no, Transpose::yes, slot(layer.gates, t), step_kernel(l, layer.kernel), false,
                   layer.d_input);
      if (l > 0) {
        step.drop(left(layer.d_input), d_below_, decoder_dropout_site(static_cast<int>(l)), t);
        d_above = d_below_;
      }
    }
  }

  backend.gemm(Transpose::yes, Transpose::no, joined_, d_attention_, true, d_output_kernel_);
  ready(output_kernel_index_);
  for (std::size_t l = layers_.size(); l-- > 0;) {
    Layer& layer = layers_[l];
    backend.gemm(Transpose::yes, Transpose::no, layer.input.row_range(0, rows), layer.gates, true,
                 step_kernel(l, layer.d_kernel));
    backend.add_column_sums(layer.gates, layer.d_bias);
    ready(layer.bias_index);
    if (l > 0) ready(layer.kernel_index);
  }
  Layer& bottom = layers_.front();
  backend.gemm(Transpose::yes, Transpose::no, embedded_, bottom.gates, true,
               bottom.d_kernel.row_range(0, units_));
  ready(bottom.kernel_index);
  backend.gemm(Transpose::no, Transpose::yes, bottom.gates, bottom.kernel.row_range(0, units_), false,
               d_embedded_);
  step.drop(d_embedded_, d_embedded_, decoder_dropout_site(0));
  backend.embedding_backward(d_embedded_, ids, embedding_.d_table);
  if (!embedding_.shared) ready(embedding_.index);

  backend.attention_memory_backward(shape, left(joined_), keys_, source_lengths, scale_, weights_, d_scores_,
                                    right(d_joined_), d_keys_, encoder.d_memory(), d_scale_);
  backend.gemm(Transpose::yes, Transpose::no, encoder.memory(), d_keys_, true, d_memory_kernel_);
  backend.gemm(Transpose::no, Transpose::yes, d_keys_, memory_kernel_, true, encoder.d_memory());
  ready(memory_kernel_index_);
  if (scale_.data != nullptr) ready(scale_index_);

  if (!passes_state_) {
    zero_final_state_gradients(step, encoder);
    return;
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    backend.copy(right(layers_[l].d_input), encoder.d_final_h(static_cast<int>(l)));
    backend.copy(layers_[l].d_cell, encoder.d_final_c(static_cast<int>(l)));
  }
}

void AttentionDecoder::plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                                   std::int64_t beam) {
  sentences_ = sentences;
  source_steps_ = source_steps;
  beam_ = beam;
  const std::int64_t rows = sentences * beam;
  keys_ = arena.take(source_steps * sentences, units_);
  search_.plan(arena, layers_.size(), rows, 2 * units_, units_);
  search_joined_ = arena.take(rows, units_ + depth_);
  search_weights_ = arena.take(rows, source_steps);
  search_attention_ = arena.take(rows, units_);
}

void AttentionDecoder::start_search(const StepContext& step, Encoder& encoder, const Indices& beam_rows) {
  step.backend.gemm(Transpose::no, Transpose::no, encoder.memory(), memory_kernel_, false, keys_);
  search_.start(step, passes_state_ ? &encoder : nullptr, beam_rows);
  step.backend.zero(search_attention_);
}

void AttentionDecoder::search_step(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                                   const Indices& parents, const Indices& ids) {
  Backend& backend = step.backend;
  search_.select(step, parents);
  backend.embedding_forward(embedding_.table, ids, search_.input[0].col_range(0, units_));
  backend.gather_rows(search_attention_, parents, search_.input[0].col_range(units_, units_));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    search_.advance(step, l, layers_[l].kernel, layers_[l].bias, forget_bias_);
    const bool top = l + 1 == layers_.size();
    backend.copy(search_.hidden(l), top ? left(search_joined_) : search_.input[l + 1].col_range(0, units_));
  }
  backend.attention_forward({sentences_, source_steps_, beam_}, left(search_joined_), keys_, encoder.memory(),
                            source_lengths, scale_, search_weights_, right(search_joined_));
  backend.gemm(Transpose::no, Transpose::no, search_joined_, output_kernel_, false, search_attention_);
}

Tensor AttentionDecoder::search_output() const {
  return output_attention_ ? search_attention_ : left(search_joined_);
}

}  // namespace nmt
