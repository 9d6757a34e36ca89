#include "nmt_example/model/attention.hpp"

#include <cmath>

namespace nmt {

using enum Transpose;

Attention::Attention(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth)
    : kind_(shape.attention),
      units_(shape.units),
      depth_(depth),
      memory_kernel_(layout.declare("attention/memory_kernel", depth, shape.units)),
      value_columns_(depth) {
  if (!additive()) return;
  query_kernel_ = layout.declare("attention/query_kernel", units_, units_);
  v_ = layout.declare("attention/v", 1, units_);
  if (!normed()) return;
  b_ = layout.declare("attention/b", 1, units_, 0);
  g_ = layout.declare("attention/g", 1, 1, std::sqrt(1.0 / static_cast<double>(units_)));
}

void Attention::declare_last(ParameterLayout& layout) {
  if (kind_ == AttentionKind::scaled_luong) scale_ = layout.declare("attention/scale", 1, 1, 1);
}

void Attention::project_values(std::size_t kernel, std::int64_t columns) {
  value_kernel_ = kernel;
  value_columns_ = columns;
}

AttentionScore Attention::score(const StepContext& step) const {
  if (!additive()) return {.scale = scale_ ? step.value(*scale_) : Tensor()};
  return {.v = normed() ? direction_ : step.value(v_)};
}

void Attention::plan(Arena& arena, const AttentionShape& shape, std::int64_t rows, std::int64_t steps,
                     bool training) {
  shape_ = shape;
  rows_ = rows;
  keys_ = arena.take(shape.source_steps * shape.sentences, units_);
  if (value_kernel_) values_ = arena.take(keys_.rows, value_columns_);
  const auto take_scores = [&] {
    return arena.take(steps * rows, aligned_stride(shape.source_steps)).col_range(0, shape.source_steps);
  };
  weights_ = take_scores();
  if (additive()) queries_ = arena.take(steps * rows, units_);
  if (normed()) direction_ = arena.take_full(1, units_);
  if (!training) return;
  d_keys_ = arena.take(keys_.rows, units_);
  if (value_kernel_) d_values_ = arena.take(keys_.rows, value_columns_);
  d_scores_ = take_scores();
  d_queries_ = arena.take(steps * rows, units_);
  if (normed()) d_direction_ = arena.take_full(1, units_);
}

void Attention::prepare(const StepContext& step, const Encoded& source) {
  step.backend.multiply(source.memory, no, step.value(memory_kernel_), false, keys_);
  if (value_kernel_) {
    step.backend.multiply(source.memory, no, value_rows(step.value(*value_kernel_)), false, values_);
  }
  if (normed()) step.backend.scaled_direction(step.value(v_), step.value(g_), direction_);
}

void Attention::step(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& query,
                     const Tensor& context) {
  const Tensor q = score_query(t, query);
  if (additive()) step.backend.multiply(query, no, step.value(query_kernel_), false, q);
  if (normed()) step.backend.add_row(step.value(b_), q);
  step.backend.attention_forward(shape_, score(step), q, keys_, values(source), source.lengths,
                                 from_step(weights_, t, query), context);
}

void Attention::step_backward(const StepContext& step, const Encoded& source, std::int64_t t,
                              const Tensor& query, const Tensor& d_context, const Tensor& d_query) {
  const Tensor d_q = from_step(d_queries_, t, query);
  step.backend.attention_backward(shape_, score(step), score_query(t, query), keys_, values(source),
                                  source.lengths, from_step(weights_, t, query), d_context,
                                  from_step(d_scores_, t, query), d_q);
  additive() ? step.backend.multiply(d_q, yes, step.value(query_kernel_), true, d_query)
             : step.backend.add(d_q, d_query);
}

void Attention::finish(const StepContext& step, const Encoded& source, const Tensor& queries,
                       const Tensor& d_contexts) {
  Backend& backend = step.backend;
  AttentionScore d_score{.scale = scale_ ? step.gradient(*scale_) : Tensor()};
  if (additive()) d_score.v = normed() ? d_direction_ : step.gradient(v_);
  if (normed()) backend.zero(d_direction_);
  backend.attention_memory_backward(shape_, score(step), additive() ? queries_ : queries, keys_,
                                    source.lengths, weights_, d_scores_, d_contexts, d_keys_,
                                    value_kernel_ ? d_values_ : source.d_memory, d_score);
  if (value_kernel_) {
    backend.gemm(yes, no, source.memory, d_values_, true, value_rows(step.gradient(*value_kernel_)));
    backend.multiply(d_values_, yes, value_rows(step.value(*value_kernel_)), false, source.d_memory);
  }
  if (normed()) {
    backend.scaled_direction_backward(step.value(v_), step.value(g_), d_direction_, step.gradient(v_),
                                      step.gradient(g_));
    backend.add_column_sums(d_queries_, step.gradient(b_));
    step.added_gradient(g_);
    step.added_gradient(b_);
  }
  if (additive()) {
    backend.gemm(yes, no, queries, d_queries_, true, step.gradient(query_kernel_));
    step.added_gradient(v_);
    step.added_gradient(query_kernel_);
  }
  backend.gemm(yes, no, source.memory, d_keys_, true, step.gradient(memory_kernel_));
  step.added_gradient(memory_kernel_);
  if (scale_) step.added_gradient(*scale_);
  backend.multiply(d_keys_, yes, step.value(memory_kernel_), true, source.d_memory);
}

}  // namespace nmt
