#pragma once

#include <cstdint>

namespace nmt {

enum class AttentionKind : std::uint8_t { none, luong, scaled_luong };

/// The dimensions of a model, which determine its parameters.
struct ModelShape {
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::int64_t embedding = 0;  ///< Size of an embedded word.
  std::int64_t units = 0;      ///< Cells per layer.
  int encoder_layers = 0;
  int decoder_layers = 0;
  /// Two independent encoder stacks of encoder_layers / 2, one reading backwards; the tops are
  /// concatenated (tensorflow/nmt's `bi`).
  bool bidirectional = false;
  AttentionKind attention = AttentionKind::none;
  std::int64_t attention_units = 0;  ///< Size of the attention vector.
  bool output_attention = true;      ///< The softmax reads the attention vector, not the cell's output.
  bool pass_hidden_state = true;     ///< The decoder starts from the encoder's final state.
  double forget_bias = 1.0;
  bool share_vocabulary = false;  ///< One embedding table for both sides.

  [[nodiscard]] bool has_attention() const noexcept { return attention != AttentionKind::none; }
  /// Whether the decoder starts from the encoder's final state, which needs equally many layers.
  [[nodiscard]] bool passes_state() const noexcept {
    return encoder_layers == decoder_layers && (pass_hidden_state || !has_attention());
  }
};

}  // namespace nmt
