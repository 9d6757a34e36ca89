#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "nmt_example/model/attention.hpp"

namespace nmt {

/// The hypotheses that a step of a search continues. Row r, of sentence sentence_of_row[r], continues row
/// parents[r] of the step before, in the first step the sentence, with word ids[r].
struct SearchRows {
  Indices sentence_of_row, parents, ids;
  Indices sources, source_rows;  ///< parents[r] = source_rows[sources[r]]: the parents, each once.
};

constexpr std::uint32_t decoder_dropout_site(int layer) { return 0x200 + static_cast<std::uint32_t>(layer); }
constexpr std::uint32_t output_dropout_site = 0x400;

/// The target side, up to the vectors that the output projection reads. tensorflow/nmt's architectures:
/// - without attention, each layer reads the one below;
/// - `standard`: all layers attend: the top one's output is the query, the attention vector = [top output;
///   context] W (no bias, no tanh; computed as top output Wq + mean of memory Wc) is a part of the lowest
///   one's next input, and, with output_attention, the output;
/// - `gnmt` and `gnmt_v2`: the lowest layer attends: its output is the query, and the context a part of its
///   next input and of the inputs of all layers above: that of the step before (gnmt), or of the same
///   (gnmt_v2).
///   Without feed_context (NVIDIA's GNMT), the lowest layer reads words alone.
/// Layers that attend advance together, step by step; in training, the others run over whole sequences.
class Decoder {
 public:
  /// `depth`: of the encoder's memory.
  Decoder(ParameterLayout& layout, const ModelShape& shape, std::int64_t depth);
  /// Declares the parameters that come behind the whole model's others.
  void declare_last(ParameterLayout& layout);

  void plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps,
            bool training);
  /// Runs all target steps with the reference words as input: [target_steps * sentences] ids.
  void forward(const StepContext& step, const Encoded& source, const Indices& ids);
  /// Backward pass from d_output(): adds to the parameters' gradients, and sets the source's.
  void backward(const StepContext& step, const Encoded& source, const Indices& ids);

  /// [target_steps * sentences, output_columns()]
  [[nodiscard]] Tensor output() const { return dropped_.empty() ? undropped_output() : dropped_; }
  [[nodiscard]] Tensor d_output() const { return d_output_; }
  [[nodiscard]] std::int64_t output_columns() const noexcept { return output_columns_; }

  // Inference: one step at a time, with at most `rows` hypotheses.
  void plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps, std::int64_t rows);
  void start_search(const StepContext& step, const Encoded& source, std::int64_t sentences);
  /// The table that saves a search's steps their products with words: [vocabulary, this].
  [[nodiscard]] std::int64_t word_product_columns() const { return layers_[0].gate_columns(); }
  /// Fills the table, for the parameters as they are; an empty one is not used.
  void set_word_products(const StepContext& step, const Tensor& table);
  /// Sets output() [rows, output_columns()] and, with attention, search_weights() [rows, source_steps]. For
  /// steps with the same batch key, `rows` must be in the same memory.
  void search_step(const StepContext& step, const Encoded& source, const SearchRows& rows);
  /// Empty without attention.
  [[nodiscard]] Tensor search_weights() const { return attention_ ? attention_->search_weights() : Tensor(); }

 private:
  void plan_layers(Arena& arena, const AttentionShape& shape, std::int64_t rows, std::int64_t steps,
                   bool searches, bool training);
  void attend(const StepContext& step, const Encoded& source, std::int64_t t);
  void advance_search(const StepContext& step, const Encoded& source, const SearchRows& rows);
  void attend_backward(const StepContext& step, const Encoded& source, std::int64_t t, const Tensor& d_query);
  Tensor backward_above(const StepContext& step, const Encoded& source);
  [[nodiscard]] Tensor undropped_output() const;
  [[nodiscard]] RnnState initial_state(const Encoded& source, std::size_t layer) const {
    return passes_state_ ? source.states[layer] : RnnState();
  }
  /// The layer whose output is the query.
  [[nodiscard]] const RnnLayer& querying() const { return layers_[std::max<std::size_t>(attending_, 1) - 1]; }
  [[nodiscard]] Tensor slot(const Tensor& x, std::int64_t t) const {
    return x.row_range(t * most_rows_, rows_);
  }
  /// The lowest of the layers with nothing but layers below them that run over whole sequences.
  [[nodiscard]] std::size_t first_above() const {
    return attention_ ? std::max<std::size_t>(attending_, 1) : 0;
  }
  [[nodiscard]] std::span<RnnLayer> layers_above() { return std::span(layers_).subspan(first_above()); }
  [[nodiscard]] Tensor d_inputs(std::size_t layer) const {
    return layer == 0 ? d_embedded_ : d_inputs_[layer % 2];
  }
  /// Of an input of layers above an attending one: the layer's below, and the context's.
  [[nodiscard]] Tensor part_below(const Tensor& inputs) const { return inputs.col_range(0, units_); }
  [[nodiscard]] Tensor context_part(const Tensor& inputs) const {
    return inputs.col_range(units_, inputs.cols - units_);
  }
  [[nodiscard]] Tensor query_rows(const Tensor& output_kernel) const {
    return output_kernel.row_range(0, units_);
  }

  /// What layers above an attending one read of the source in all steps.
  [[nodiscard]] Tensor contexts_above() const {
    return fed_.row_range(new_context_ ? most_rows_ : 0, steps_ * rows_);
  }

  std::int64_t embedded_columns_, units_, depth_, output_columns_;
  bool all_attend_, new_context_, output_attention_, passes_state_, residual_;
  std::size_t number_, above_;  // of the layout: this, and the layers above
  std::optional<Attention> attention_;
  Embedding embedding_;
  std::size_t attending_;  // layers that advance together
  std::vector<RnnLayer> layers_;
  std::size_t output_kernel_ = 0;
  std::optional<std::size_t> output_dropout_;

  std::int64_t most_rows_ = 0, rows_ = 0, steps_ = 0;  // of a step: rows that there is room for, and its rows
  Tensor embedded_;                                    // [steps * rows, embedding]
  Tensor fed_;  // [(steps + 1) * rows, ...]: attention vectors, or contexts, before and after steps
  bool searches_ = false;
  Tensor dropped_;  // in training with dropout of the output: what the projection reads of that
  Tensor word_products_;
  Tensor d_embedded_, d_output_;
  Tensor d_queries_;                // [steps * rows, units], if all layers attend
  Tensor d_fed_;                    // [steps * rows, ...]: of those after steps
  std::array<Tensor, 2> d_inputs_;  // of layers above attending ones, or without attention
};

}  // namespace nmt
