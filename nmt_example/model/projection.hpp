#pragma once

#include <optional>
#include <span>
#include <vector>

#include "nmt_example/model/arena.hpp"
#include "nmt_example/model/embedding.hpp"
#include "nmt_example/model/sampled_words.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

/// The output layer (dense; the kernel has a row for each word and may be the table of embedded words, a bias
/// is optional), fused with softmax and cross-entropy: logits exist only for a few rows at a time, and padded
/// target positions are skipped. Cost: 2 units * vocabulary operations per target word forward, three times
/// that with the gradient.
///
/// With sampled words, the loss that is minimised is TensorFlow's sampled_softmax_loss: each target competes
/// with the step's drawn words alone, from whose logits the logarithms of their expected counts are
/// subtracted (Jean et al. 2015). The vocabulary in the cost above is then that of the drawn words and of the
/// batch's targets.
class OutputProjection {
 public:
  OutputProjection(ParameterLayout& layout, const ModelShape& shape, std::int64_t inputs);

  /// Takes working memory for up to `rows` target words.
  void plan(Arena& arena, const Backend& backend, std::int64_t rows, bool training);
  /// Adds the loss of `output`'s rows `rows` [n] with targets [n] to `sums`; see Backend. `words`: the
  /// targets, for the host. With `d_output`, sets it (zero in rows not listed) and adds to the parameters'
  /// gradients, all times `scale`; the loss is then among sampled words, if the shape says so.
  void loss(const StepContext& step, const Tensor& output, const Indices& rows, const Indices& targets,
            std::span<const std::int32_t> words, double label_smoothing, const Tensor& d_output,
            const double* scale, const Tensor& sums);
  /// Log-probabilities of the next word, for each row of `output`.
  void log_probabilities(const StepContext& step, const Tensor& output, const Tensor& log_probs);
  /// The most probable next words; see Backend::best_log_softmax. `logits`: working memory for a
  /// best_block() of them.
  void best_words(const StepContext& step, const Tensor& output, std::int32_t also, const Tensor& logits,
                  const Tensor& best);

  [[nodiscard]] std::int64_t vocabulary() const noexcept { return vocabulary_; }

 private:
  /// The layer, of all words or of some. Kernels may have rows of zeros after the words'. Empty biases are
  /// missing.
  struct Weights {
    bool are_parameters;
    std::int64_t words;
    Tensor kernel, bias, d_kernel, d_bias;
  };

  [[nodiscard]] Weights all_words(const StepContext& step) const;
  /// For logits alone.
  [[nodiscard]] Weights some_words(const StepContext& step, std::int64_t first, std::int64_t count) const;
  Weights sampled_words(const StepContext& step, std::span<const std::int32_t> words);
  void add_sampled_gradients(const StepContext& step, const Weights& weights);
  /// c = a op(kernel)
  static void multiply(Backend& backend, const Weights& weights, const Tensor& a, Transpose t,
                       const Tensor& c);
  /// logits = input * kernel^T + bias, of the words; there must be room for those of all rows of the kernel.
  static void compute_logits(Backend& backend, const Weights& weights, const Tensor& input,
                             const Tensor& logits);

  std::int64_t inputs_, vocabulary_;
  std::size_t kernel_;
  std::optional<std::size_t> bias_;
  Tensor compact_, d_compact_, logits_;

  std::optional<SampledWords> sampled_;
  Indices ids_, places_;  // of the sampled words, and of the targets among them
  Tensor sampled_kernel_, d_sampled_kernel_, sampled_bias_, d_sampled_bias_, bias_part_;
  std::vector<std::int32_t> host_places_;
  std::vector<float> host_bias_;
};

}  // namespace nmt
