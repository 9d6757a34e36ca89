#pragma once

#include <functional>
#include <memory>

#include "nmt_example/model/encoder.hpp"

namespace nmt {

/// Called with a parameter's index when its gradient is final.
using ReadyFunction = std::function<void(std::size_t)>;

/// The target side, up to the vectors that the output projection reads.
class Decoder {
 public:
  virtual ~Decoder() = default;

  virtual void plan(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                    std::int64_t target_steps, bool training) = 0;
  /// Runs all target steps with the reference words as input: [target_steps * sentences] ids.
  virtual void forward(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                       const Indices& ids) = 0;
  /// Backward pass from d_output(): adds to the gradients, and sets the encoder's d_memory and d_final_*.
  virtual void backward(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                        const Indices& ids, const ReadyFunction& ready) = 0;

  /// [target_steps * sentences, units]
  [[nodiscard]] virtual Tensor output() const = 0;
  [[nodiscard]] virtual Tensor d_output() const = 0;

  // Inference: one step at a time, with `beam` hypotheses per sentence; row = sentence * beam + hypothesis.
  virtual void plan_search(Arena& arena, std::int64_t sentences, std::int64_t source_steps,
                           std::int64_t beam) = 0;
  /// Row r starts from the encoder's result for sentence beam_rows[r].
  virtual void start_search(const StepContext& step, Encoder& encoder, const Indices& beam_rows) = 0;
  /// Row r continues the hypothesis of row parents[r]. Writes the output [rows, units] and, with attention,
  /// the weights [rows, source_steps].
  virtual void search_step(const StepContext& step, Encoder& encoder, const Indices& source_lengths,
                           const Indices& parents, const Indices& ids) = 0;
  [[nodiscard]] virtual Tensor search_output() const = 0;
  /// Empty without attention.
  [[nodiscard]] virtual Tensor search_weights() const = 0;
};

std::unique_ptr<Decoder> make_decoder(const ParameterSet& parameters, const ModelShape& shape);

}  // namespace nmt
