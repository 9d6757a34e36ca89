#pragma once

#include <vector>

#include "nmt_example/model/decoder.hpp"

namespace nmt {

constexpr std::uint32_t decoder_dropout_site(int layer) { return 0x200 + static_cast<std::uint32_t>(layer); }

/// The target side's embedding table, which may also be the source side's.
struct TargetEmbedding {
  TargetEmbedding(const ParameterSet& parameters, const ModelShape& shape);
  std::size_t index;
  bool shared;
  Tensor table, d_table;
};

void zero_final_state_gradients(const StepContext& step, Encoder& encoder);

/// The recurrent state of hypotheses during a search: for each layer, the input vector followed by the
/// layer's own output, and the cells. All of it exists twice, because a row may continue any other.
struct SearchState {
  void plan(Arena& arena, std::size_t layers, std::int64_t rows, std::int64_t first_input,
            std::int64_t units);
  /// Rows start from the encoder's final states (row r from sentence beam_rows[r]), or from zeros.
  void start(const StepContext& step, Encoder* encoder, const Indices& beam_rows);
  /// Row r takes over the state of row parents[r].
  void select(const StepContext& step, const Indices& parents);
  /// Advances a layer by one step. The input part of `input[layer]` must be filled.
  void advance(const StepContext& step, std::size_t layer, const Tensor& kernel, const Tensor& bias,
               double forget_bias);
  [[nodiscard]] Tensor hidden(std::size_t layer) const {
    return input[layer].col_range(input[layer].cols - cell[layer].cols, cell[layer].cols);
  }

  std::vector<Tensor> input, other_input;  // [rows, input + units]
  std::vector<Tensor> cell, other_cell;    // [rows, units]
  Tensor gates, tanh_c;
};

/// Each layer runs over all steps before the next layer starts, because nothing feeds back from the top.
class PlainDecoder final : public Decoder {
 public:
  PlainDecoder(const ParameterSet& parameters, const ModelShape& shape);

  void plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps,
            bool training) override;
  void forward(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
               const Indices& ids) override;
  void backward(const StepContext& step, Encoder& encoder, const Indices& source_lengths, const Indices& ids,
                const ReadyFunction& ready) override;
  [[nodiscard]] Tensor output() const override { return layers_.back().output(); }
  [[nodiscard]] Tensor d_output() const override { return d_output_; }

  void plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                   std::int64_t beam) override;
  void start_search(const StepContext& step, Encoder& encoder, const Indices& beam_rows) override;
  void search_step(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                   const Indices& parents, const Indices& ids) override;
  [[nodiscard]] Tensor search_output() const override;
  [[nodiscard]] Tensor search_weights() const override { return {}; }

 private:
  TargetEmbedding embedding_;
  std::vector<LstmLayer> layers_;
  std::vector<Tensor> kernels_, biases_;
  bool passes_state_;
  double forget_bias_;

  Tensor embedded_, d_output_, d_h_, d_c_;
  SearchState search_;
};

/// Luong attention on the top layer with input feeding: the first layer's input is the word's embedding
/// followed by the previous step's attention vector, so all layers advance step by step. Attention vector =
/// [top output; context] W, no bias, no tanh (tensorflow/nmt's `standard`).
class AttentionDecoder final : public Decoder {
 public:
  AttentionDecoder(const ParameterSet& parameters, const ModelShape& shape);

  void plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps,
            bool training) override;
  void forward(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
               const Indices& ids) override;
  void backward(const StepContext& step, Encoder& encoder, const Indices& source_lengths, const Indices& ids,
                const ReadyFunction& ready) override;
  [[nodiscard]] Tensor output() const override;
  [[nodiscard]] Tensor d_output() const override { return d_output_; }

  void plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                   std::int64_t beam) override;
  void start_search(const StepContext& step, Encoder& encoder, const Indices& beam_rows) override;
  void search_step(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                   const Indices& parents, const Indices& ids) override;
  [[nodiscard]] Tensor search_output() const override;
  [[nodiscard]] Tensor search_weights() const override { return search_weights_; }

 private:
  struct Layer {
    std::size_t kernel_index, bias_index;
    Tensor kernel, bias, d_kernel, d_bias;
    // Step t's slot of `input` holds [input of this layer | its output of step t - 1].
    Tensor input;    // [(steps + 1) * sentences, 2 units]
    Tensor gates;    // [steps * sentences, 4 units]
    Tensor cell;     // [(steps + 1) * sentences, units]
    Tensor tanh_c;   // [steps * sentences, units]
    Tensor d_input;  // [sentences, 2 units]
    Tensor d_cell;   // [sentences, units]
  };
  /// The part of a layer's kernel that multiplies `Layer::input`.
  [[nodiscard]] Tensor step_kernel(std::size_t layer, const Tensor& kernel) const {
    return layer == 0 ? kernel.row_range(units_, 2 * units_) : kernel;
  }
  [[nodiscard]] Tensor slot(const Tensor& x, std::int64_t t) const {
    return x.row_range(t * sentences_, sentences_);
  }
  [[nodiscard]] Tensor left(const Tensor& x) const { return x.col_range(0, units_); }
  [[nodiscard]] Tensor right(const Tensor& x) const { return x.col_range(units_, x.cols - units_); }
  [[nodiscard]] std::int64_t fed_column() const { return (units_ + 3) / 4 * 4; }

  std::int64_t units_, depth_;
  bool output_attention_, passes_state_;
  double forget_bias_;
  TargetEmbedding embedding_;
  std::vector<Layer> layers_;
  std::size_t memory_kernel_index_, output_kernel_index_;
  Tensor memory_kernel_, d_memory_kernel_, output_kernel_, d_output_kernel_;
  std::size_t scale_index_ = 0;
  Tensor scale_, d_scale_;  // empty without a scale

  std::int64_t sentences_ = 0, source_steps_ = 0, target_steps_ = 0;
  Tensor embedded_;   // [T * B, units], after dropout
  Tensor keys_;       // [S * B, units]
  Tensor joined_;     // [T * B, units + depth]: top output and context
  Tensor weights_;    // [T * B, S]
  Tensor attention_;  // [T * B, units]
  Tensor d_embedded_, d_keys_, d_joined_, d_scores_, d_attention_, d_output_, d_query_, d_below_;

  SearchState search_;
  Tensor search_joined_, search_weights_, search_attention_;
  std::int64_t beam_ = 1;
};

}  // namespace nmt
