#include "nmt_example/model/decoder.hpp"

#include <fmt/format.h>

namespace nmt {

Decoder::Decoder(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth)
    : embedded_columns_(shape.embedding),
      units_(shape.units),
      depth_(depth),
      output_columns_(shape.has_attention() && shape.output_attention ? shape.attention_units : shape.units),
      output_attention_(shape.output_attention),
      passes_state_(shape.passes_state()),
      attention_(shape.has_attention() ? std::optional<Attention>(std::in_place, layout, shape, depth)
                                       : std::nullopt),
      embedding_(layout, shape, "decoder", shape.target_vocabulary) {
  for (int l = 0; l < shape.decoder_layers; ++l) {
    std::vector<std::int64_t> inputs = {l == 0 ? shape.embedding : shape.units};
    if (l == 0 && attention_) inputs.push_back(shape.attention_units);
    std::int64_t columns = 0;
    for (const std::int64_t part : inputs) columns += part;
    layers_.emplace_back(make_cell(layout, fmt::format("decoder/lstm_{}", l), columns, shape),
                         RnnLayerSettings{inputs, false, false, decoder_dropout_site(l)});
  }
  if (!attention_) return;
  attending_ = layers_.size();
  output_kernel_ = layout.declare("attention/output_kernel", shape.units + depth, shape.attention_units);
}

void Decoder::declare_last(ParameterLayout& layout) {
  if (attention_) attention_->declare_last(layout);
}

void Decoder::plan_layers(Arena& arena, const AttentionShape& shape, std::int64_t steps, bool searches,
                          bool training) {
  rows_ = shape.sentences * shape.queries_per_sentence;
  steps_ = steps;
  embedded_ = arena.take(steps * rows_, embedded_columns_);
  if (attention_) {
    attention_->plan(arena, shape, steps, training);
    joined_ = arena.take(steps * rows_, units_ + depth_);
    fed_ = arena.take((steps + 1) * rows_, layers_.front().inputs(1));
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const bool queries = l + 1 == attending_;
    const std::size_t ahead = searches ? 0 : l == 0 || l >= attending_ ? 1 : 0;
    layers_[l].plan(arena, rows_, steps, ahead, training, queries ? query_part(joined_) : Tensor());
  }
}

void Decoder::plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps,
                   bool training) {
  plan_layers(arena, {sentences, source_steps, 1}, target_steps, false, training);
  if (!training) return;
  const std::int64_t rows = target_steps * sentences;
  d_output_ = arena.take(rows, output_columns_);
  d_embedded_ =
      embedded_columns_ == output_columns_ && !attention_ ? d_output_ : arena.take(rows, embedded_columns_);
  if (!attention_) return;
  d_joined_ = arena.take(rows, units_ + depth_);
  d_fed_ = output_attention_ ? d_output_ : arena.take(rows, fed_.cols);
}

Tensor Decoder::output() const {
  if (!attention_) return layers_.back().output();
  return output_attention_ ? fed_.row_range(rows_, steps_ * rows_) : query_part(joined_);
}

/// Step t of the attending layers.
void Decoder::attend(const StepContext& step, const Encoded& source, std::int64_t t) {
  layers_[0].put(step, 1, t, slot(fed_, t));
  layers_[0].advance(step, t);
  for (std::size_t l = 1; l < attending_; ++l) {
    layers_[l].put(step, 0, t, layers_[l - 1].output(t));
    layers_[l].advance(step, t);
  }
  const Tensor joined = slot(joined_, t);
  attention_->step(step, source, t, query_part(joined), context_part(joined));
  step.backend.gemm(Transpose::no, Transpose::no, joined, step.value(output_kernel_), false,
                    slot(fed_, t + 1));
}

void Decoder::forward(const StepContext& step, const Encoded& source, const Indices& ids) {
  embedding_.forward(step, ids, embedded_);
  if (attention_) {
    attention_->prepare(step, source);
    step.backend.zero(slot(fed_, 0));
    layers_[0].read_ahead(step, std::array{embedded_});
    for (std::size_t l = 0; l < attending_; ++l) layers_[l].start(step, initial_state(source, l));
    for (std::int64_t t = 0; t < steps_; ++t) attend(step, source, t);
  }
  for (std::size_t l = attending_; l < layers_.size(); ++l) {
    const Tensor below = l == 0 ? embedded_ : layers_[l - 1].output();
    layers_[l].forward(step, std::array{below}, {}, initial_state(source, l));
  }
}

/// Backward pass of `attend`.
void Decoder::attend_backward(const StepContext& step, const Encoded& source, std::int64_t t) {
  Backend& backend = step.backend;
  const Tensor d_fed = slot(d_fed_, t), d_joined = slot(d_joined_, t);
  if (t + 1 < steps_) backend.add(layers_[0].d_input(step, 1, t + 1), d_fed);
  backend.gemm(Transpose::no, Transpose::yes, d_fed, step.value(output_kernel_), false, d_joined);
  Tensor d_above = query_part(d_joined);
  attention_->step_backward(step, source, t, context_part(d_joined), d_above);
  if (!output_attention_) backend.add(slot(d_output_, t), d_above);
  for (std::size_t l = attending_; l-- > 0;) {
    layers_[l].retreat(step, t, d_above);
    if (l > 0) d_above = layers_[l].d_input(step, 0, t);
  }
}

void Decoder::backward(const StepContext& step, const Encoded& source, const Indices& ids) {
  Backend& backend = step.backend;
  Tensor d_above = d_output_;
  for (std::size_t l = layers_.size(); l-- > attending_;) {
    const Tensor d_input = l == 0 ? d_embedded_ : d_above;
    layers_[l].backward(step, d_above, {}, d_input);
    d_above = d_input;
  }
  if (attention_) {
    if (!output_attention_) backend.zero(d_fed_);
    for (std::size_t l = 0; l < attending_; ++l) layers_[l].start_backward(step, {});
    for (std::int64_t t = steps_ - 1; t >= 0; --t) attend_backward(step, source, t);
    backend.gemm(Transpose::yes, Transpose::no, joined_, d_fed_, true, step.gradient(output_kernel_));
    step.added_gradient(output_kernel_);
    for (std::size_t l = attending_; l-- > 0;) {
      layers_[l].finish_backward(step, l == 0 ? d_embedded_ : Tensor());
    }
  } else {
    backend.zero(source.d_memory);
  }
  embedding_.backward(step, d_embedded_, ids);
  if (attention_) attention_->finish(step, source, query_part(joined_), context_part(d_joined_));
  for (std::size_t l = 0; l < source.d_states.size(); ++l) {
    const RnnState to = source.d_states[l];
    const RnnState from = passes_state_ ? layers_[l].d_initial_state() : RnnState();
    passes_state_ ? backend.copy(from.h, to.h) : backend.zero(to.h);
    if (to.c.data == nullptr) continue;
    passes_state_ ? backend.copy(from.c, to.c) : backend.zero(to.c);
  }
}

void Decoder::plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                          std::int64_t beam) {
  plan_layers(arena, {sentences, source_steps, beam}, 1, true, false);
}

void Decoder::start_search(const StepContext& step, const Encoded& source, const Indices& beam_rows) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].start_search(step, initial_state(source, l), beam_rows);
  }
  if (!attention_) return;
  attention_->prepare(step, source);
  step.backend.zero(slot(fed_, 1));
}

void Decoder::search_step(const StepContext& step, const Encoded& source, const Indices& parents,
                          const Indices& ids) {
  for (RnnLayer& layer : layers_) layer.select(step, parents);
  if (attention_) step.backend.gather_rows(slot(fed_, 1), parents, slot(fed_, 0));
  embedding_.forward(step, ids, embedded_);
  layers_[0].put(step, 0, 0, embedded_);
  if (attention_) attend(step, source, 0);
  for (std::size_t l = attending_; l < layers_.size(); ++l) {
    if (l > 0) layers_[l].put(step, 0, 0, layers_[l - 1].output(0));
    layers_[l].advance(step, 0);
  }
}

}  // namespace nmt
