#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nmt {

enum class AttentionKind { none, luong, scaled_luong };

/// The dimensions of a model, which determine its parameters.
struct ModelShape {
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::int64_t units = 0;  ///< Cells per layer, and the embeddings' size.
  int encoder_layers = 0;
  int decoder_layers = 0;
  /// Two independent encoder stacks of encoder_layers / 2, one reading backwards; the tops are
  /// concatenated (tensorflow/nmt's `bi`).
  bool bidirectional = false;
  AttentionKind attention = AttentionKind::none;
  bool output_attention = true;   ///< The softmax reads the attention vector, not the cell's output.
  bool pass_hidden_state = true;  ///< The decoder starts from the encoder's final state.
  double forget_bias = 1.0;
  bool share_vocabulary = false;  ///< One embedding table for both sides.

  [[nodiscard]] bool has_attention() const noexcept { return attention != AttentionKind::none; }
  /// Width of the encoder's output.
  [[nodiscard]] std::int64_t memory_depth() const noexcept { return bidirectional ? 2 * units : units; }
  /// Whether the decoder starts from the encoder's final state, which needs equally many layers.
  [[nodiscard]] bool passes_state() const noexcept {
    return encoder_layers == decoder_layers && (pass_hidden_state || !has_attention());
  }
};

enum class Initializer { weights, zero, one };

struct ParameterSpec {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Initializer initializer = Initializer::weights;
  std::int64_t offset = 0;  ///< Elements before it in the flat buffers.

  [[nodiscard]] std::int64_t size() const noexcept { return rows * cols; }
};

/// The parameters of a model in the order in which forward uses them, so that backward finishes their
/// gradients from the last to the first.
struct ParameterLayout {
  std::vector<ParameterSpec> parameters;
  std::int64_t size = 0;  ///< Elements in all.

  [[nodiscard]] std::size_t index_of(const std::string& name) const;
  [[nodiscard]] bool contains(const std::string& name) const noexcept;
};

ParameterLayout parameter_layout(const ModelShape& shape);

/// The table that is printed before training: name, shape, parameters, share; then the totals and the
/// bytes of gradients that every step exchanges.
std::string describe(const ParameterLayout& layout);

}  // namespace nmt
