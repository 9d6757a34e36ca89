#pragma once

#include <optional>

#include "nmt_example/model/encoder.hpp"

namespace nmt {

/// Weights over the source's positions for a query, and with them the mean of the memory: the context.
/// In training a row of a step is a sentence; in a search, a hypothesis.
class Attention {
 public:
  /// `depth`: of the memory.
  Attention(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth);
  /// Declares the parameters that come behind the whole model's others.
  void declare_last(ParameterLayout& layout);

  /// Takes the working memory for `steps` steps. `shape`: of one step.
  void plan(Arena& arena, const AttentionShape& shape, std::int64_t steps, bool training);
  /// Computes what does not depend on queries.
  void prepare(const StepContext& step, const Encoded& source);
  /// Step t: query [rows, units] -> context [rows, depth].
  void step(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& query,
            const Tensor& context);
  /// Adds to d_query.
  void step_backward(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& d_context,
                     const Tensor& d_query);
  /// The rest of the backward pass, for all steps at once. Sets the source's d_memory.
  void finish(const StepContext& step, const Encoded& source, const Tensor& queries,
              const Tensor& d_contexts);

  /// Of the last step that `plan` has room for, [rows, source steps].
  [[nodiscard]] Tensor weights() const { return weights_.row_range(weights_.rows - rows(), rows()); }

 private:
  [[nodiscard]] std::int64_t rows() const { return shape_.sentences * shape_.queries_per_sentence; }
  [[nodiscard]] Tensor slot(const Tensor& x, std::int64_t t) const { return x.row_range(t * rows(), rows()); }
  [[nodiscard]] Tensor scale(const StepContext& step) const {
    return scale_ ? step.value(*scale_) : Tensor();
  }

  AttentionKind kind_;
  std::int64_t units_;
  std::size_t memory_kernel_;
  std::optional<std::size_t> scale_;

  AttentionShape shape_;
  Tensor keys_;     // [source steps * sentences, units]
  Tensor weights_;  // [steps * rows, source steps]
  Tensor d_keys_, d_scores_, d_query_;
};

}  // namespace nmt
