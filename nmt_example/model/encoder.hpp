#pragma once

#include <vector>

#include "nmt_example/model/lstm_layer.hpp"

namespace nmt {

/// Unique over both stacks of up to 128 layers, or one of up to 256, and the decoder's 0x200 to 0x2ff.
constexpr std::uint32_t encoder_dropout_site(int stack, int layer) {
  return 0x100 + static_cast<std::uint32_t>(0x40 * stack + layer % 0x40 + 0x200 * (layer / 0x40));
}

/// The source side: reads embedded words, and computes the memory and the final states. It has either one
/// stack of layers, or two independent ones that read in opposite directions and whose tops are concatenated.
class Encoder {
 public:
  Encoder(const ParameterSet& parameters, const ModelShape& shape);

  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training);
  void forward(const StepContext& step, const Indices& ids, const Indices& lengths);
  /// Backward pass from d_memory() and the final states' gradients, d_final_h() and d_final_c(), which are
  /// consumed. Calls `ready(index)` for each of the encoder's parameters when its gradient is final; the
  /// embedding, which the decoder may share, is the last.
  template <typename Ready>
  void backward(const StepContext& step, const Indices& ids, const Indices& lengths, const Ready& ready) {
    for (std::size_t s = stacks_.size(); s-- > 0;) {
      for (std::size_t l = stacks_[s].size(); l-- > 0;) {
        backward_layer(step, lengths, s, l);
        ready(stacks_[s][l].bias_index());
        ready(stacks_[s][l].kernel_index());
      }
    }
    step.backend.embedding_backward(d_embedded_, ids, d_table_);
    ready(table_index_);
  }

  /// [steps * sentences, memory depth]; rows beyond a sentence's length are zero.
  [[nodiscard]] const Tensor& memory() const noexcept { return memory_; }
  [[nodiscard]] const Tensor& d_memory() const noexcept { return d_memory_; }
  /// Final states in the order of the decoder's layers; with two stacks fw0, bw0, fw1, bw1, ...
  [[nodiscard]] Tensor final_h(int layer) const { return layer_at(layer).final_h(); }
  [[nodiscard]] Tensor final_c(int layer) const { return layer_at(layer).final_c(); }
  /// The gradients of the final states, set by the decoder; zero if it does not use these states.
  [[nodiscard]] Tensor d_final_h(int layer) const { return d_h_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] Tensor d_final_c(int layer) const { return d_c_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] int layers() const noexcept {
    return static_cast<int>(stacks_.size() * stacks_.front().size());
  }

 private:
  [[nodiscard]] const LstmLayer& layer_at(int index) const;
  void backward_layer(const StepContext& step, const Indices& lengths, std::size_t stack, std::size_t layer);

  std::size_t table_index_;
  Tensor table_, d_table_;
  std::vector<std::vector<LstmLayer>> stacks_;

  Tensor embedded_, memory_, d_embedded_, d_memory_, d_between_, d_input_;
  std::vector<Tensor> d_h_, d_c_;
};

}  // namespace nmt
