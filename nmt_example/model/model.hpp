#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nmt_example/model/network.hpp"

namespace nmt {

/// One rank's sentences of a step, time-major: element t * sentences + b.
struct BatchView {
  std::int64_t sentences = 0;
  std::int64_t source_steps = 0;
  std::int64_t target_steps = 0;
  std::span<const std::int32_t> source;          ///< [source_steps * sentences] ids, padded
  std::span<const std::int32_t> source_lengths;  ///< [sentences], at least 1
  std::span<const std::int32_t> target_in;       ///< [target_steps * sentences]: <s> and the words
  std::span<const std::int32_t> target_out;      ///< [target_steps * sentences]: the words and </s>
  std::span<const std::int32_t> target_lengths;  ///< [sentences], with </s>
  std::span<const std::int32_t> samples;         ///< [sentences] number of each in the data set
};

struct BatchLimits {
  std::int64_t sentences = 0;
  std::int64_t source_steps = 0;
  std::int64_t target_steps = 0;
};

/// A batch in the backend's memory, ready to be computed.
struct StagedBatch {
  BatchLimits sizes;           ///< With some more steps than it has, where work is recorded.
  std::int64_t loss_rows = 0;  ///< Its target words, and some rows without one, where the loss is recorded.
  const double* words = nullptr;  ///< The number of its target words, in the backend's memory.
  DropoutSettings dropout;
  Indices samples;        ///< That dropout is for.
  std::uint64_t key = 0;  ///< Equal for batches of equal sizes in the same memory, but for their loss rows.
  bool records_loss = false;
};

struct BatchLoss {
  double negative_log_likelihood = 0;  ///< Sum over target words (with </s>) of -log p.
  double smoothed = 0;                 ///< The loss that is minimised: the same unless labels are smoothed.
  std::int64_t target_tokens = 0;
};

/// What a backward pass does with gradients from before it.
enum class GradientUse : std::uint8_t { replace, add };

/// Called when a part of a step begins: "forward", "loss" (with the projection, both ways) or "backward".
using PartFunction = std::function<void(std::string_view part)>;

/// The types of a model's tensors, each the backend's unless said otherwise.
struct ModelTypes {
  /// Of what layers compute and of its gradients, which products then get from both factors. In 16 bits,
  /// parameters, cells' inner states, sums within products and the loss stay in the backend's type.
  std::optional<ddl::DataType> activations = {};
  /// Of the parameters' gradients. In 16 bits, sums over a batch are in the backend's type; what is added to
  /// a gradient is rounded with it, once or twice a batch, by the output layer for each block of logits.
  std::optional<ddl::DataType> gradients = {};
};

/// The most working memory that translating or evaluating a batch takes beyond that of training. A batch is
/// made smaller to stay within it; a sentence that alone needs more is refused.
inline constexpr std::size_t largest_workspace = std::size_t{1} << 30;
/// The largest table of products with words that a search makes.
inline constexpr std::size_t largest_word_products = std::size_t{1} << 27;

/// The translator: encoder, decoder and output layer on one backend. Allocates its working memory from the
/// limits when it is made; a training step allocates nothing. Not thread-safe.
class Model {
 public:
  /// `gradients`: memory for as many gradients as the model has parameters; null: the backend allocates it,
  /// unless the limits are 0, which make a model that only translates and evaluates.
  Model(Backend& backend, const ModelShape& shape, const BatchLimits& limits,
        std::shared_ptr<void> gradients = nullptr, const ModelTypes& types = {});

  [[nodiscard]] ParameterSet& parameters() noexcept { return parameters_; }
  [[nodiscard]] const ModelShape& shape() const noexcept { return shape_; }
  /// Those of the constructor.
  [[nodiscard]] const BatchLimits& limits() const noexcept { return limits_.front(); }
  /// Trains on batches within these limits, too.
  void also_allow(const BatchLimits& limits);
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
  /// Where the working memory is now. Evaluating a batch beyond the limits may move it.
  [[nodiscard]] const void* workspace() const noexcept { return arena_.block(); }
  /// The working memory that training on batches within such limits takes.
  [[nodiscard]] std::size_t training_bytes(const BatchLimits& limits) { return bytes_of(limits, true); }

  /// Brings a batch into the backend's memory, in one copy, for the next `forward_backward`. `loss_rows`: the
  /// loss is computed of at least so many words, where it is recorded. Throws `invalid_argument` for a batch
  /// that is not within the limits.
  StagedBatch stage(const BatchView& batch, const DropoutSettings& dropout,
                    GradientUse use = GradientUse::replace, std::int64_t loss_rows = 0);
  /// Sets the gradients to those of the summed loss of the batch that was staged last, or adds these. Calls
  /// `ready` once for each parameter, when its gradient is final. A batch without sentences has zero
  /// gradients. Adds the batch's loss to `sums`: two f64 of the backend, as `BatchLoss` has them.
  void forward_backward(const StagedBatch& batch, double label_smoothing, const ReadyFunction& ready,
                        const Tensor& sums);
  /// Whether it trains on batches of this size.
  [[nodiscard]] bool is_within_limits(const BatchLimits& sizes) const { return limits_of(sizes) != nullptr; }
  /// From now on `forward_backward` sets or adds gradients times `scale`, in the backend's memory, so that
  /// small ones are not lost in 16 bits. Null: 1. Returns what it replaces.
  const double* scale_loss(const double* scale) noexcept { return std::exchange(loss_scale_, scale); }
  /// Sets the function that `forward_backward` calls when a part begins.
  void on_part(PartFunction hears) { on_part_ = std::move(hears); }
  /// Whether evaluating such a batch needs no more working memory than training.
  [[nodiscard]] bool fits(std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps);
  /// The loss alone, without dropout. A batch may be beyond the limits; the working memory then grows to at
  /// most `largest_workspace`. Throws `unsupported` if that is not enough.
  BatchLoss evaluate(const BatchView& batch);
  /// The same, for each sentence: the sum over its words of -log p.
  std::vector<double> sentence_losses(const BatchView& batch);
  /// The working memory that these take.
  [[nodiscard]] std::size_t evaluation_bytes(const BatchView& batch) {
    return bytes_of(padded(batch), false);
  }

 private:
  void prepare_evaluation(const BatchView& batch);
  StagedBatch staged(const BatchView& batch, const DropoutSettings& dropout, bool training,
                     std::int64_t loss_rows, bool by_sentence = false);
  void run(const StagedBatch& batch, double label_smoothing, const ReadyFunction* ready, const Tensor& sums,
           std::span<const std::int32_t> lengths = {}, std::vector<double>* sentence_losses = nullptr);
  void plan(const BatchLimits& sizes, bool training);
  std::size_t bytes_of(const BatchLimits& sizes, bool training);
  [[nodiscard]] const BatchLimits* limits_of(const BatchLimits& sizes) const;
  [[nodiscard]] BatchLimits padded(const BatchView& batch) const;
  void list_loss_rows(const BatchView& batch, const BatchLimits& sizes, std::int64_t least, bool records);
  void sort_by_sentence(const BatchView& batch);
  Indices upload_batch(const BatchView& batch, const DropoutSettings& dropout);

  Backend& backend_;
  ModelShape shape_;
  std::vector<BatchLimits> limits_;  // a batch is within one of them
  ParameterLayout layout_;
  Network network_;
  ParameterSet parameters_;
  ddl::DataType activations_;
  Arena arena_;
  std::size_t workspace_bytes_ = 0;

  Indices source_, source_lengths_, target_in_, samples_, loss_rows_, targets_;
  PhiloxKey* dropout_keys_ = nullptr;
  Tensor words_;
  Staging staging_;  // for all of these
  Tensor sums_;      // of `evaluate`
  std::vector<std::int32_t> host_rows_, host_targets_;
  const double* loss_scale_ = nullptr;
  std::vector<int> missing_;  // see BackwardProgress
  AddedGradients added_;
  PartFunction on_part_;

  friend class SearchModel;
};

/// The inference side of a model: up to `beam` hypotheses for each sentence of a batch, which advance
/// together by one word at a time. Has working memory of its own, which grows with the batches.
class SearchModel {
 public:
  SearchModel(Model& model, std::int64_t beam);

  /// The working memory of a batch.
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t sentences, std::int64_t source_steps);
  /// Says that about so many rows are to come, all with the parameters as they are now. A search of more rows
  /// than there are words then looks up what the decoder's lowest layer computes of a word.
  void expect(std::int64_t rows) noexcept { expected_rows_ = rows; }
  /// Encodes the sources. Uses only `sentences`, `source_steps`, `source` and `source_lengths` of the batch.
  void start(const BatchView& batch);
  /// Row r continues row parents[r] of the step before with words[r]; in the first step, it begins sentence
  /// parents[r]. There are as many rows as parents: at most `beam` for each sentence, and at least one.
  void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words);

  // What the last step gives, computed when it is asked for, and valid until the next call.
  // `others`, on the same backend, have made the same step: the probabilities are then the means of all.
  /// [rows, target vocabulary], in the backend's memory; of this model alone.
  [[nodiscard]] Tensor log_probabilities();
  /// [rows * (2 k + 1)], k = `beam` + 2 or the vocabulary's size: of each row, the k most probable next
  /// words, the most probable first; their log-probabilities; that of word `also`.
  [[nodiscard]] std::span<const double> best_words(std::int32_t also, std::span<SearchModel> others = {});
  /// [rows * 2]: of each row, the next word that is drawn by numbers[row], and its log-probability; see
  /// Backend::draw_columns.
  [[nodiscard]] std::span<const double> draw_words(std::span<const double> numbers, double temperature,
                                                   std::int32_t excluded, std::span<SearchModel> others = {});
  /// [rows * as many as source_steps or some more]; empty without attention.
  [[nodiscard]] std::span<const float> attention_weights();

 private:
  [[nodiscard]] StepContext context() const;
  void plan(std::int64_t sentences, std::int64_t source_steps);
  void make_word_products();
  /// log(sum of all models' probabilities)
  [[nodiscard]] Tensor log_sums(std::span<SearchModel> others);
  [[nodiscard]] std::span<const double> downloaded(const Tensor& words);
  /// The part for the rows of the last step.
  [[nodiscard]] Tensor used(const Tensor& x) const { return x.row_range(0, rows_); }

  Model& model_;
  Backend& backend_;
  std::int64_t beam_;
  ParameterLayout layout_;
  Network network_;
  Arena arena_;
  std::int64_t sentences_ = 0;
  std::int64_t source_steps_ = 0;
  std::int64_t rows_ = 0, padded_rows_ = 0;  // of the last step
  Indices source_, source_lengths_, samples_;
  Staging staging_;      // for the source and its lengths
  Indices row_indices_;  // of the step, see SearchRows
  std::shared_ptr<void> word_products_;
  std::int64_t expected_rows_ = 0;
  Tensor log_probs_, best_, numbers_;
  std::vector<float> weights_;
  std::vector<double> words_;
  std::vector<std::int32_t> host_indices_, sentence_of_row_, source_of_parent_, source_rows_;
};

}  // namespace nmt
