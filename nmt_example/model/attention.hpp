#pragma once

#include <optional>

#include "nmt_example/model/encoder.hpp"

namespace nmt {

/// Weights over the source's positions for a query, and with them the mean of the values: the context. The
/// values are the memory, or its product with a kernel that the context would be multiplied with otherwise,
/// once for each position instead of once for each query. In training a row of a step is a sentence; in a
/// search, a hypothesis. Scores of a query q and a key k = memory W:
/// - luong: q . k; scaled_luong: g (q . k);
/// - bahdanau: v . tanh(q V + k); normed_bahdanau: g v/|v| . tanh(q V + k + b).
class Attention {
 public:
  /// `depth`: of the memory.
  Attention(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth);
  /// Declares the parameters that come behind the whole model's others.
  void declare_last(ParameterLayout& layout);
  /// The values become the memory times the last rows of parameter `kernel`, [..., columns].
  void project_values(std::size_t kernel, std::int64_t columns);

  /// Takes the working memory for `steps` steps of `rows` queries each: one for each sentence, or as many as
  /// a search has at most.
  void plan(Arena& arena, const AttentionShape& shape, std::int64_t rows, std::int64_t steps, bool training);
  /// The queries of the next step of a search.
  void search_for(const Indices& sentence_of_row) { shape_.sentence_of_row = sentence_of_row; }
  /// Computes what does not depend on queries.
  void prepare(const StepContext& step, const Encoded& source);
  /// Step t, or this and more steps: query [rows, units] -> context [rows, columns of the values].
  void step(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& query,
            const Tensor& context);
  /// Adds to d_query.
  void step_backward(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& query,
                     const Tensor& d_context, const Tensor& d_query);
  /// The rest of the backward pass, for all steps at once. Sets the source's d_memory, and adds to the
  /// gradient of the values' kernel.
  void finish(const StepContext& step, const Encoded& source, const Tensor& queries,
              const Tensor& d_contexts);

  /// Of a search's last step, [rows, source steps].
  [[nodiscard]] Tensor search_weights() const { return weights_.row_range(0, shape_.sentence_of_row.size); }

 private:
  /// The part of `x` for as many rows as `like` has, from step t.
  [[nodiscard]] Tensor from_step(const Tensor& x, std::int64_t t, const Tensor& like) const {
    return x.row_range(t * rows_, like.rows);
  }
  [[nodiscard]] bool additive() const noexcept {
    return kind_ == AttentionKind::bahdanau || kind_ == AttentionKind::normed_bahdanau;
  }
  [[nodiscard]] bool normed() const noexcept { return kind_ == AttentionKind::normed_bahdanau; }
  [[nodiscard]] AttentionScore score(const StepContext& step) const;
  [[nodiscard]] Tensor value_rows(const Tensor& kernel) const {
    return kernel.row_range(kernel.rows - depth_, depth_);
  }
  [[nodiscard]] Tensor values(const Encoded& source) const { return value_kernel_ ? values_ : source.memory; }

  /// The query as the score has it.
  [[nodiscard]] Tensor score_query(std::int64_t t, const Tensor& query) const {
    return additive() ? from_step(queries_, t, query) : query;
  }

  AttentionKind kind_;
  std::int64_t units_, depth_;
  std::size_t memory_kernel_;
  std::size_t query_kernel_ = 0, v_ = 0, b_ = 0, g_ = 0;  // of additive scores; b and g of normed ones
  std::optional<std::size_t> scale_;
  std::optional<std::size_t> value_kernel_;
  std::int64_t value_columns_;

  AttentionShape shape_;
  std::int64_t rows_ = 0;
  Tensor keys_;       // [source steps * sentences, units]
  Tensor values_;     // [source steps * sentences, value columns], if they are projected
  Tensor weights_;    // [steps * rows, source steps]
  Tensor queries_;    // [steps * rows, units], after the query's kernel
  Tensor direction_;  // [1, units]: g v/|v|
  Tensor d_keys_, d_values_, d_scores_, d_queries_, d_direction_;
};

}  // namespace nmt
