#pragma once

#include <array>
#include <memory>
#include <vector>

#include "nmt_example/model/embedding.hpp"
#include "nmt_example/model/rnn_layer.hpp"

namespace nmt {

/// Unique over both stacks of up to 128 layers, or one of up to 256, and the decoder's 0x200 to 0x2ff.
constexpr std::uint32_t encoder_dropout_site(int stack, int layer) {
  return 0x100 + static_cast<std::uint32_t>(0x40 * stack + layer % 0x40 + 0x200 * (layer / 0x40));
}

/// What a decoder gets of the source, and the gradients that it gives back.
struct Encoded {
  Tensor memory;                 ///< [steps * sentences, depth]; rows beyond a sentence's length are zero.
  Indices lengths;               ///< [sentences]
  std::vector<RnnState> states;  ///< Final states, in the order of the decoder's layers.
  Tensor d_memory;
  std::vector<RnnState> d_states;
};

/// The source side.
class Encoder {
 public:
  virtual ~Encoder() = default;

  virtual void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training) = 0;
  virtual void forward(const StepContext& step, const Indices& ids, const Indices& lengths) = 0;
  /// Adds to the parameters' gradients, from those of the result.
  virtual void backward(const StepContext& step, const Indices& ids) = 0;
  /// Valid from `plan` to the next `plan`; its contents are set by `forward`.
  [[nodiscard]] const Encoded& result() const noexcept { return result_; }

  /// Width of the result's memory.
  [[nodiscard]] virtual std::int64_t depth() const = 0;

 protected:
  Encoded result_;
};

std::unique_ptr<Encoder> make_encoder(ParameterLayout& layout, const ModelShape& shape);

}  // namespace nmt
