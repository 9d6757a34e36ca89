#pragma once

#include <optional>

#include "nmt_example/model/arena.hpp"
#include "nmt_example/model/embedding.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

/// The output layer (dense; the kernel may be the transposed table of embedded words, a bias is optional),
/// fused with softmax and cross-entropy: logits exist only for a few rows at a time, and padded target
/// positions are skipped. Cost: 2 units * vocabulary operations per target word forward, three times that
/// with the gradient.
class OutputProjection {
 public:
  OutputProjection(ParameterLayout& layout, const ModelShape& shape, std::int64_t inputs);

  /// Takes working memory for up to `rows` target words.
  void plan(Arena& arena, const Backend& backend, std::int64_t rows, bool training);
  /// Adds the loss of `output`'s rows `rows` [n] with targets [n] to `sums`; see Backend. With `d_output`,
  /// sets it (zero in rows not listed) and adds to the kernel's gradient; both are multiplied by `scale`.
  void loss(const StepContext& step, const Tensor& output, const Indices& rows, const Indices& targets,
            double label_smoothing, const Tensor& d_output, double scale, const Tensor& sums);
  /// Log-probabilities of the next word, for each row of `output`.
  void log_probabilities(const StepContext& step, const Tensor& output, const Tensor& log_probs);

  [[nodiscard]] std::int64_t vocabulary() const noexcept { return vocabulary_; }

 private:
  /// logits = input * kernel + bias
  void multiply(const StepContext& step, const Tensor& input, const Tensor& logits) const;

  std::int64_t inputs_, vocabulary_;
  bool tied_;
  std::size_t kernel_;
  std::optional<std::size_t> bias_;
  Tensor compact_, d_compact_, logits_;
};

}  // namespace nmt
