#include "nmt_example/model/attention.hpp"

namespace nmt {

Attention::Attention(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth)
    : kind_(shape.attention),
      units_(shape.units),
      memory_kernel_(layout.declare("attention/memory_kernel", depth, shape.units)) {}

void Attention::declare_last(ParameterLayout& layout) {
  if (kind_ == AttentionKind::scaled_luong) scale_ = layout.declare("attention/scale", 1, 1, 1);
}

void Attention::plan(Arena& arena, const AttentionShape& shape, std::int64_t steps, bool training) {
  shape_ = shape;
  keys_ = arena.take(shape.source_steps * shape.sentences, units_);
  weights_ = arena.take(steps * rows(), shape.source_steps);
  if (!training) return;
  d_keys_ = arena.take(keys_.rows, units_);
  d_scores_ = arena.take(weights_.rows, shape.source_steps);
  d_query_ = arena.take(rows(), units_);
}

void Attention::prepare(const StepContext& step, const Encoded& source) {
  step.backend.gemm(Transpose::no, Transpose::no, source.memory, step.value(memory_kernel_), false, keys_);
}

void Attention::step(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& query,
                     const Tensor& context) {
  step.backend.attention_forward(shape_, query, keys_, source.memory, source.lengths, scale(step),
                                 slot(weights_, t), context);
}

void Attention::step_backward(const StepContext& step, const Encoded& source, std::int64_t t,
                              const Tensor& d_context, const Tensor& d_query) {
  step.backend.attention_backward(shape_, keys_, source.memory, source.lengths, scale(step),
                                  slot(weights_, t), d_context, slot(d_scores_, t), d_query_);
  step.backend.add(d_query_, d_query);
}

void Attention::finish(const StepContext& step, const Encoded& source, const Tensor& queries,
                       const Tensor& d_contexts) {
  Backend& backend = step.backend;
  backend.attention_memory_backward(shape_, queries, keys_, source.lengths, scale(step), weights_, d_scores_,
                                    d_contexts, d_keys_, source.d_memory,
                                    scale_ ? step.gradient(*scale_) : Tensor());
  backend.gemm(Transpose::yes, Transpose::no, source.memory, d_keys_, true, step.gradient(memory_kernel_));
  step.added_gradient(memory_kernel_);
  if (scale_) step.added_gradient(*scale_);
  backend.gemm(Transpose::no, Transpose::yes, d_keys_, step.value(memory_kernel_), true, source.d_memory);
}

}  // namespace nmt
