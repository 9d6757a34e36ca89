#include "nmt_example/model/rnn_layer.hpp"

#include <utility>

namespace nmt {

RnnLayer::RnnLayer(std::unique_ptr<Cell> cell, RnnLayerSettings settings)
    : cell_(std::move(cell)),
      reads_backwards_(settings.reads_backwards),
      residual_(settings.residual),
      dropout_(settings.dropout),
      number_(settings.number) {
  std::int64_t first = 0, dropout_column = 0;
  for (const std::int64_t columns : settings.inputs) {
    parts_.push_back({first, columns, dropout_column});
    first += columns;
    dropout_column += (columns + 3) / 4 * 4;
  }
}

void RnnLayer::plan(Arena& arena, std::int64_t sentences, std::int64_t steps, std::size_t ahead,
                    bool training, const Tensor& output) {
  const std::int64_t rows = steps * sentences;
  const std::int64_t columns = parts_.back().first + parts_.back().columns;
  sentences_ = rows_ = rows_before_ = sentences;
  sources_ = {};
  steps_ = steps;
  ahead_parts_ = ahead;
  ahead_columns_ = ahead == parts_.size() ? columns : parts_[ahead].first;
  const std::int64_t input_columns = columns - ahead_columns_ + units();
  dropped_ = arena.take(rows, ahead_columns_);
  input_ = arena.take(rows + sentences, input_columns);
  gates_ = arena.take(rows, cell_->gate_columns());
  saved_ = arena.take(rows, cell_->saved_columns());
  products_ = arena.take_full(sentences, cell_->product_columns());
  if (cell_->has_c()) c_ = arena.take_full(rows + sentences, units());
  output_ = output.empty() && residual_ ? arena.take(rows, units()) : output;
  if (!training) return;
  d_input_ = arena.take(sentences, input_columns);
  if (cell_->has_c()) d_c_ = arena.take_full(sentences, units());
  scratch_ = arena.take_full(sentences, cell_->scratch_columns());
  sums_ = arena.take_full(1, cell_->sum_columns());
}

Tensor RnnLayer::output() const {
  return output_.data != nullptr ? output_.row_range(0, steps_ * rows_)
                                 : h().row_range(sentences_, steps_ * rows_);
}

void RnnLayer::forward(const StepContext& step, const RnnInput& from) {
  step.replay(number_, 0, [&] { forward(step, from, all()); });
}

void RnnLayer::forward(const StepContext& step, const RnnInput& from, const Chunk& chunk) {
  drop_ahead(step, from.parts, chunk);
  if (chunk.begin == 0) start(step, from.initial);
  lengths_ = from.lengths;
  at_once_ = chunk.end - chunk.begin == steps_ && cell_->forward_layer(step, whole());
  if (!at_once_) {
    cell_->project(step, rows_of(ahead_, chunk), rows_of(gates_, chunk));
    for (std::int64_t i = chunk.begin; i < chunk.end; ++i) advance(step, nth_step(i));
  }
  if (residual_) step.backend.add(rows_of(from.parts.front(), chunk), rows_of(output_, chunk));
}

void RnnLayer::backward(const StepContext& step, const RnnGradients& gradients) {
  const auto& [d_output, d_final, d_inputs] = gradients;
  start_backward(step, d_final);
  if (at_once_) {
    cell_->backward_layer(step, whole(), {d_output, d_initial_state(), d_inputs});
    drop_back(step, d_inputs, all());
  } else {
    for (std::int64_t i = steps_ - 1; i >= 0; --i) retreat(step, nth_step(i), slot(d_output, nth_step(i)));
    finish_backward(step, d_inputs);
  }
  if (residual_) step.backend.add(d_output, d_inputs.col_range(0, parts_.front().columns));
}

void RnnLayer::backward(const StepContext& step, const RnnGradients& gradients, const Chunk& chunk) {
  const auto& [d_output, d_final, d_inputs] = gradients;
  if (chunk.end == steps_) start_backward(step, d_final);
  for (std::int64_t i = chunk.end - 1; i >= chunk.begin; --i)
    retreat(step, nth_step(i), slot(d_output, nth_step(i)));
  project_back(step, d_inputs, chunk);
  if (residual_) {
    step.backend.add(rows_of(d_output, chunk), rows_of(d_inputs, chunk).col_range(0, parts_.front().columns));
  }
}

void RnnLayer::add_gradients(const StepContext& step) const {
  const Tensor input = input_.row_range(reads_backwards_ ? sentences_ : 0, steps_ * sentences_);
  cell_->add_gradients(step, {ahead_, input, gates_, saved_, sums_});
}

CellLayer RnnLayer::whole() const {
  return {.x = ahead_,
          .states = input_,
          .c = c_,
          .gates = gates_,
          .saved = saved_,
          .output = output_,
          .lengths = lengths_,
          .from_zero = from_zero_,
          .reads_backwards = reads_backwards_};
}

void RnnLayer::drop_ahead(const StepContext& step, std::span<const Tensor> inputs, const Chunk& chunk) {
  if (step.dropout.rate == 0 && ahead_parts_ == 1) {
    ahead_ = inputs.front();
  } else {
    ahead_ = dropped_.row_range(0, steps_ * rows_);
    const Tensor to = rows_of(ahead_, chunk);
    for (std::size_t p = 0; p < ahead_parts_; ++p) {
      step.drop(rows_of(inputs[p], chunk), to.col_range(parts_[p].first, parts_[p].columns), dropout_,
                first_step(chunk), parts_[p].dropout_column);
    }
  }
}

void RnnLayer::drop_back(const StepContext& step, const Tensor& d_ahead, const Chunk& chunk) const {
  if (d_ahead.data == nullptr) return;
  for (std::size_t p = 0; p < ahead_parts_; ++p) {
    const Tensor d = rows_of(d_ahead, chunk).col_range(parts_[p].first, parts_[p].columns);
    step.drop(d, d, dropout_, first_step(chunk), parts_[p].dropout_column);
  }
}

void RnnLayer::project_back(const StepContext& step, const Tensor& d_ahead, const Chunk& chunk) const {
  if (d_ahead.data == nullptr) return;
  cell_->project_back(step, rows_of(gates_, chunk), rows_of(d_ahead, chunk));
  drop_back(step, d_ahead, chunk);
}

void RnnLayer::read_ahead(const StepContext& step, std::span<const Tensor> inputs) {
  drop_ahead(step, inputs, all());
  cell_->project(step, ahead_, gates_.row_range(0, steps_ * rows_));
}

void RnnLayer::start(const StepContext& step, const RnnState& initial) {
  lengths_ = {};
  from_zero_ = initial.h.data == nullptr && input_.cols == units();
  const RnnState first = state(before(nth_step(0)));
  for (const auto& [from, to] : {std::pair(initial.h, first.h), std::pair(initial.c, first.c)}) {
    if (to.data == nullptr) continue;
    from.data != nullptr ? step.backend.copy(from, to) : step.backend.zero(to);
  }
}

void RnnLayer::put(const StepContext& step, std::size_t part, std::int64_t t, const Tensor& x) {
  step.drop(
      x, slot(input_, t, rows_before_).col_range(parts_[part].first - ahead_columns_, parts_[part].columns),
      dropout_, t, parts_[part].dropout_column);
}

void RnnLayer::advance(const StepContext& step, std::int64_t t, const Tensor& below) {
  cell_->forward(step, {.input = slot(input_, before(t), rows_before_),
                        .from_zero = from_zero_ && t == nth_step(0),
                        .gates = slot(gates_, t),
                        .products = slot(products_, 0, rows_before_),
                        .saved = slot(saved_, t),
                        .before = state(before(t), rows_before_),
                        .after = state(after(t)),
                        .output = slot(output_, t),
                        .lengths = lengths_,
                        .sources = sources_,
                        .step = t});
  if (residual_ && below.data != nullptr) step.backend.add(below, slot(output_, t));
}

void RnnLayer::start_backward(const StepContext& step, const RnnState& d_final) {
  if (!sums_.empty()) step.backend.zero(sums_);
  const RnnState last = d_initial_state();
  for (const auto& [from, to] : {std::pair(d_final.h, last.h), std::pair(d_final.c, last.c)}) {
    if (to.data == nullptr) continue;
    from.data != nullptr ? step.backend.copy(from, to) : step.backend.zero(to);
  }
}

void RnnLayer::retreat(const StepContext& step, std::int64_t t, const Tensor& d_output) {
  cell_->backward(step, {.input = slot(input_, before(t)),
                         .gates = slot(gates_, t),
                         .saved = slot(saved_, t),
                         .before = state(before(t)),
                         .after = state(after(t)),
                         .d_output = d_output,
                         .d_input = d_input_,
                         .d_state = d_initial_state(),
                         .scratch = scratch_,
                         .sums = sums_,
                         .lengths = lengths_,
                         .step = t});
}

Tensor RnnLayer::d_input(const StepContext& step, std::size_t part, std::int64_t t) {
  const Tensor d = d_input_.col_range(parts_[part].first - ahead_columns_, parts_[part].columns);
  step.drop(d, d, dropout_, t, parts_[part].dropout_column);
  return d;
}

void RnnLayer::finish_backward(const StepContext& step, const Tensor& d_ahead) {
  step.replay(number_, 1, [&] {
    add_gradients(step);
    project_back(step, d_ahead, all());
  });
}

void RnnLayer::set_rows(std::int64_t parents, const Indices& sources) {
  rows_before_ = parents;
  rows_ = sources.size != 0 ? sources.size : parents;
  sources_ = sources;
}

void RnnLayer::select(const StepContext& step, const Indices& parents) const {
  const RnnState from = state(1, sentences_), to = state(0, rows_before_);
  step.backend.gather_rows(from.h, parents, to.h);
  if (from.c.data != nullptr) step.backend.gather_rows(from.c, parents, to.c);
}

void RnnLayer::start_search(const StepContext& step, const RnnState& initial, std::int64_t rows) {
  lengths_ = {};
  from_zero_ = false;
  rows_ = rows;
  const RnnState to = state(1);
  for (const auto& [from, first] : {std::pair(initial.h, to.h), std::pair(initial.c, to.c)}) {
    if (first.data == nullptr) continue;
    from.data != nullptr ? step.backend.copy(from, first) : step.backend.zero(first);
  }
}

}  // namespace nmt
