#include "nmt_example/model/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "nmt_example/model/rnn_stack.hpp"

namespace nmt {

Decoder::Decoder(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth)
    : embedded_columns_(shape.target_embedding),
      units_(shape.units),
      depth_(depth),
      output_columns_(shape.all_attend() && shape.output_attention ? shape.attention_units : shape.units),
      all_attend_(shape.all_attend()),
      new_context_(shape.architecture == AttentionArchitecture::gnmt_v2),
      output_attention_(all_attend_ && shape.output_attention),
      passes_state_(shape.passes_state()),
      residual_(shape.residual),
      number_(layout.declare_layer()),
      above_(layout.declare_layer()),
      attention_(shape.has_attention() ? std::optional<Attention>(std::in_place, layout, shape, depth)
                                       : std::nullopt),
      embedding_(layout, shape, Side::decoder),
      attending_(static_cast<std::size_t>(shape.attending_layers())) {
  for (int l = 0; l < shape.decoder_layers; ++l) {
    std::vector<std::int64_t> inputs = {l == 0 ? shape.target_embedding : shape.units};
    if (l == 0 && all_attend_) {
      inputs.push_back(shape.attention_units);
    } else if (attention_ && !all_attend_ && (l > 0 || shape.feed_context)) {
      inputs.push_back(depth);
    }
    const std::int64_t columns = std::accumulate(inputs.begin(), inputs.end(), std::int64_t{0});
    layers_.emplace_back(
        make_cell(layout, fmt::format("decoder/{}_{}", name_of(shape.unit), l), columns, shape),
        RnnLayerSettings{inputs, false, l >= shape.decoder_layers - shape.decoder_residual_layers(),
                         layout.declare_dropout(decoder_dropout_site(l)), layout.declare_layer()});
  }
  if (shape.drops_output) output_dropout_ = layout.declare_dropout(output_dropout_site);
  if (!all_attend_) return;
  output_kernel_ = layout.declare("attention/output_kernel", shape.units + depth, shape.attention_units);
  attention_->project_values(output_kernel_, shape.attention_units);
}

void Decoder::declare_last(ParameterLayout& layout) {
  if (attention_) attention_->declare_last(layout);
}

void Decoder::plan_layers(Arena& arena, const AttentionShape& shape, std::int64_t rows, std::int64_t steps,
                          bool searches, bool training) {
  most_rows_ = rows_ = rows;
  steps_ = steps;
  searches_ = searches;
  dropped_ = {};
  embedded_ = arena.take(steps * rows_, embedded_columns_);
  if (attention_) {
    attention_->plan(arena, shape, rows_, steps, training);
    fed_ = arena.take((steps + 1) * rows_, all_attend_ ? layers_.front().inputs(1) : depth_);
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    // In a search, a layer's whole input is known when it advances, but for what the lowest one is fed.
    const bool at_once = l >= attending_ || (searches && l > 0);
    const std::size_t known = at_once ? layers_[l].parts() : l == 0 ? 1 : 0;
    layers_[l].plan(arena, rows_, steps, known, training);
  }
}

void Decoder::plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps,
                   bool training) {
  plan_layers(arena, {sentences, source_steps}, sentences, target_steps, false, training);
  if (!training) return;
  const std::int64_t rows = target_steps * sentences;
  d_output_ = arena.take(rows, output_columns_);
  if (output_dropout_) dropped_ = arena.take(rows, output_columns_);
  if (!attention_) {
    // A layer that is not residual may replace the gradient of its output.
    d_inputs_ = {d_output_, d_output_};
    if (residual_) d_inputs_[(layers_.size() - 1) % 2] = arena.take(rows, units_);
    d_embedded_ = embedded_columns_ == units_ ? d_output_ : arena.take(rows, embedded_columns_);
    return;
  }
  d_embedded_ = arena.take(rows, embedded_columns_);
  d_fed_ = output_attention_ ? d_output_ : arena.take(rows, fed_.cols);
  if (all_attend_) d_queries_ = arena.take(rows, units_);
  const std::size_t above = first_above();
  for (std::size_t l = above; l < std::min(above + 2, layers_.size()); ++l) {
    d_inputs_[l % 2] = arena.take(rows, units_ + depth_);
  }
}

Tensor Decoder::undropped_output() const {
  if (output_attention_) return fed_.row_range(most_rows_, steps_ * rows_);
  return layers_.back().output();
}

/// Step t of the attending layers.
void Decoder::attend(const StepContext& step, const Encoded& source, std::int64_t t) {
  if (!searches_) layers_[0].put(step, 1, t, slot(fed_, t));
  layers_[0].advance(step, t);
  for (std::size_t l = 1; l < attending_; ++l) {
    const Tensor below = layers_[l - 1].output(t);
    searches_ ? layers_[l].read_ahead(step, std::array{below}) : layers_[l].put(step, 0, t, below);
    layers_[l].advance(step, t, below);
  }
  const Tensor query = querying().output(t), after = slot(fed_, t + 1);
  attention_->step(step, source, t, query, after);
  if (all_attend_) {
    step.backend.multiply(query, Transpose::no, query_rows(step.value(output_kernel_)), true, after);
  }
}

void Decoder::forward(const StepContext& step, const Encoded& source, const Indices& ids) {
  embedding_.forward(step, ids, embedded_);
  if (attention_) {
    attention_->prepare(step, source);
    step.backend.zero(slot(fed_, 0));
    if (attending_ > 0) layers_[0].read_ahead(step, std::array{embedded_});
    for (std::size_t l = 0; l < attending_; ++l) layers_[l].start(step, initial_state(source, l));
    if (attending_ > 0) {
      step.replay(number_, 0, [&] {
        for (std::int64_t t = 0; t < steps_; ++t) attend(step, source, t);
      });
    }
  }
  const std::size_t first = first_above();
  if (first > attending_) {
    layers_[0].forward(step, {.parts = {embedded_}, .initial = initial_state(source, 0)});
    attention_->step(step, source, 0, layers_[0].output(), fed_.row_range(rows_, steps_ * rows_));
  }
  forward_stack(step, above_, layers_above(), [&](std::size_t n) {
    const std::size_t l = first + n;
    return RnnInput{
        .parts = {l == 0 ? embedded_ : layers_[l - 1].output(), attention_ ? contexts_above() : Tensor()},
        .initial = initial_state(source, l)};
  });
  if (!dropped_.empty()) step.drop(step.dropout.output_rate, undropped_output(), dropped_, *output_dropout_);
}

/// Backward pass of `attend`. `d_query`: the gradients of the queries from above, to which it adds.
void Decoder::attend_backward(const StepContext& step, const Encoded& source, std::int64_t t,
                              const Tensor& d_query) {
  Backend& backend = step.backend;
  const Tensor d_after = slot(d_fed_, t);
  if (t + 1 < steps_) backend.add(layers_[0].d_input(step, 1, t + 1), d_after);
  Tensor d_above = slot(d_query, t);
  if (all_attend_) {
    backend.multiply(d_after, Transpose::yes, query_rows(step.value(output_kernel_)), false, d_above);
  }
  attention_->step_backward(step, source, t, querying().output(t), d_after, d_above);
  if (all_attend_ && !output_attention_) backend.add(slot(d_output_, t), d_above);
  for (std::size_t l = attending_; l-- > 0;) {
    layers_[l].retreat(step, t, d_above);
    if (l == 0) break;
    const Tensor d_below = layers_[l].d_input(step, 0, t);
    if (layers_[l].residual()) backend.add(d_above, d_below);
    d_above = d_below;
  }
}

/// Backward pass of the layers that run over whole sequences. Returns the gradient of the output that an
/// attention below them asks with.
Tensor Decoder::backward_above(const StepContext& step, const Encoded& source) {
  Backend& backend = step.backend;
  if (attention_ && !output_attention_) backend.zero(d_fed_);
  const std::size_t first = first_above();
  const auto d_output = [&](std::size_t l) {
    return l + 1 == layers_.size() ? d_output_ : part_below(d_inputs(l + 1));
  };
  const auto gradients_of = [&](std::size_t n) {
    return RnnGradients{d_output(first + n), {}, d_inputs(first + n)};
  };
  const auto add_to_contexts = [&](std::size_t n, const Chunk& chunk) {
    if (!attention_) return;
    // Old contexts are those of the step before; the first step's is a constant.
    const std::int64_t back = new_context_ ? 0 : 1, begin = std::max(chunk.begin, back);
    const std::int64_t rows = (chunk.end - begin) * rows_;
    backend.add(context_part(d_inputs(first + n)).row_range(begin * rows_, rows),
                d_fed_.row_range((begin - back) * rows_, rows));
  };
  backward_stack(step, above_, layers_above(), gradients_of, add_to_contexts);
  if (!attention_) return {};
  const Tensor d_query = d_output(first - 1);
  if (first > attending_) {
    step.replay(number_, 4, [&] {
      attention_->step_backward(step, source, 0, layers_[0].output(), d_fed_, d_query);
      layers_[0].backward(step, {d_query, {}, d_embedded_});
    });
  }
  return d_query;
}

void Decoder::backward(const StepContext& step, const Encoded& source, const Indices& ids) {
  Backend& backend = step.backend;
  if (!dropped_.empty()) step.drop(step.dropout.output_rate, d_output_, d_output_, *output_dropout_);
  const Tensor d_query_above = backward_above(step, source);
  if (attending_ > 0) {
    const Tensor d_query = all_attend_ ? d_queries_ : d_query_above;
    step.replay(number_, 1, [&] {
      for (std::size_t l = 0; l < attending_; ++l) layers_[l].start_backward(step, {});
      for (std::int64_t t = steps_ - 1; t >= 0; --t) attend_backward(step, source, t, d_query);
      if (all_attend_) {
        backend.gemm(Transpose::yes, Transpose::no, querying().output(), d_fed_, true,
                     query_rows(step.gradient(output_kernel_)));
      }
    });
    for (std::size_t l = attending_; l-- > 0;) {
      layers_[l].finish_backward(step, l == 0 ? d_embedded_ : Tensor());
    }
  }
  step.replay(number_, 3, [&] {
    if (!attention_ && !source.d_memory.empty()) backend.zero(source.d_memory);
    embedding_.backward(step, d_embedded_, ids);
    if (attention_) {
      attention_->finish(step, source, querying().output(), d_fed_);
      if (all_attend_) step.added_gradient(output_kernel_);
    }
    for (std::size_t l = 0; l < source.d_states.size(); ++l) {
      const RnnState to = source.d_states[l];
      const RnnState from = passes_state_ ? layers_[l].d_initial_state() : RnnState();
      passes_state_ ? backend.copy(from.h, to.h) : backend.zero(to.h);
      if (to.c.data == nullptr) continue;
      passes_state_ ? backend.copy(from.c, to.c) : backend.zero(to.c);
    }
  });
}

void Decoder::plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                          std::int64_t rows) {
  plan_layers(arena, {sentences, source_steps}, rows, 1, true, false);
}

void Decoder::start_search(const StepContext& step, const Encoded& source, std::int64_t sentences) {
  rows_ = sentences;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].start_search(step, initial_state(source, l), sentences);
  }
  if (!attention_) return;
  attention_->prepare(step, source);
  step.backend.zero(slot(fed_, 1));
}

void Decoder::set_word_products(const StepContext& step, const Tensor& table) {
  Tensor words = step.value(embedding_.table());
  std::shared_ptr<void> rounded;
  if (words.type != table.type) {
    rounded = step.backend.allocate(static_cast<std::size_t>(words.size()) * ddl::size_of(table.type));
    const Tensor copy{rounded.get(), words.rows, words.cols, words.cols, table.type};
    step.backend.copy(words, copy);
    words = copy;
  }
  layers_[0].project(step, words, table);
  word_products_ = table;
}

void Decoder::search_step(const StepContext& step, const Encoded& source, const SearchRows& rows) {
  const bool shares = layers_[0].takes_sources();
  rows_ = rows.parents.size;
  for (RnnLayer& layer : layers_) {
    layer.set_rows(shares ? rows.source_rows.size : rows_, shares ? rows.sources : Indices());
  }
  if (attention_) attention_->search_for(rows.sentence_of_row);
  step.replay(number_, 2, [&] { advance_search(step, source, rows); });
}

/// What a search's step computes.
void Decoder::advance_search(const StepContext& step, const Encoded& source, const SearchRows& rows) {
  const Indices& before = layers_[0].takes_sources() ? rows.source_rows : rows.parents;
  for (const RnnLayer& layer : layers_) layer.select(step, before);
  if (attention_) {
    const Tensor fed_before = fed_.row_range(most_rows_, most_rows_);
    if (attending_ > 0) step.backend.gather_rows(fed_before, before, layers_[0].input(1));
    if (!all_attend_ && !new_context_) step.backend.gather_rows(fed_before, rows.parents, slot(fed_, 0));
  }
  const Tensor embedded = slot(embedded_, 0);
  if (word_products_.empty()) {
    embedding_.forward(step, rows.ids, embedded);
    layers_[0].read_ahead(step, std::array{embedded});
  } else {
    layers_[0].read_products(step, word_products_, rows.ids);
  }
  if (attending_ > 0) attend(step, source, 0);
  for (std::size_t l = attending_; l < layers_.size(); ++l) {
    const Tensor below = l == 0 ? embedded : layers_[l - 1].output(0);
    const std::array inputs{below, attention_ ? contexts_above() : Tensor()};
    if (l > 0) layers_[l].read_ahead(step, std::span(inputs).first(layers_[l].parts()));
    layers_[l].advance(step, 0, below);
    if (l == 0 && attention_) attention_->step(step, source, 0, layers_[0].output(0), slot(fed_, 1));
  }
}

}  // namespace nmt
