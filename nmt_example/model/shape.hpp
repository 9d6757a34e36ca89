#pragma once

#include <algorithm>
#include <cstdint>

#include "nmt_example/options/choices.hpp"

namespace nmt {

/// What determines a model's parameters. See the encoder and the decoder for the meanings.
struct ModelShape {
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::int64_t source_embedding = 0;  ///< Size of an embedded word.
  std::int64_t target_embedding = 0;
  bool source_given = false;  ///< Only the first rows of the table, of special words, are trained.
  bool target_given = false;
  std::int64_t units = 0;  ///< Cells per layer.
  UnitType unit = UnitType::lstm;
  EncoderType encoder = EncoderType::uni;
  int encoder_layers = 0;
  int decoder_layers = 0;
  bool residual = false;
  bool language_model = false;  ///< A decoder alone, which starts from zeros.
  AttentionKind attention = AttentionKind::none;
  AttentionArchitecture architecture = AttentionArchitecture::standard;
  std::int64_t attention_units = 0;  ///< Size of `standard`'s attention vector.
  bool feed_context = true;          ///< `gnmt` and `gnmt_v2`: the lowest layer reads contexts.
  bool output_attention = true;      ///< `standard`: the softmax reads it, not the cell's output.
  bool pass_hidden_state = true;     ///< The decoder starts from the encoder's final state.
  double forget_bias = 1.0;
  bool share_vocabulary = false;   ///< One embedding table for both sides.
  bool tie_output = false;         ///< The projection is the transposed target embedding.
  bool output_bias = false;        ///< The projection has a bias.
  std::int64_t sampled_words = 0;  ///< Words drawn for a step's softmax in training; 0: it is over all.
  bool drops_output = false;       ///< In training, what the output layer reads is dropped.

  [[nodiscard]] bool has_attention() const noexcept { return attention != AttentionKind::none; }
  /// Whether all layers of the decoder attend, and not only the lowest.
  [[nodiscard]] bool all_attend() const noexcept {
    return has_attention() && architecture == AttentionArchitecture::standard;
  }
  /// How many layers of the decoder advance together, because what they attend to is fed to the lowest.
  [[nodiscard]] int attending_layers() const noexcept {
    if (all_attend()) return decoder_layers;
    return has_attention() && feed_context ? 1 : 0;
  }
  /// Whether the decoder starts from the encoder's final state, which needs equally many layers.
  [[nodiscard]] bool passes_state() const noexcept {
    return !language_model && encoder_layers == decoder_layers && (pass_hidden_state || !has_attention());
  }
  /// How many layers are residual, from the top.
  [[nodiscard]] int encoder_residual_layers() const noexcept {
    return residual ? std::max(encoder_layers - (encoder == EncoderType::gnmt ? 2 : 1), 0) : 0;
  }
  [[nodiscard]] int decoder_residual_layers() const noexcept {
    if (encoder == EncoderType::gnmt && encoder_layers == decoder_layers) return encoder_residual_layers();
    return residual ? decoder_layers - 1 : 0;
  }
};

}  // namespace nmt
