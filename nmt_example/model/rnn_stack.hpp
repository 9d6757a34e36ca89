#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "nmt_example/model/rnn_layer.hpp"

/// Layers that go over a whole sequence, each of which reads the output of the one below, all in the same
/// direction. Where the backend cuts sequences into chunks, a layer computes a chunk beside the layer below,
/// which computes the next one; backward likewise, from the top. `number`: of such layers together, in the
/// layout. Gradients of layers' outputs may replace each other: a chunk is of the same steps in all layers.
namespace nmt {

/// A sequence cut into chunks of equal length; the last may be shorter.
class Chunks {
 public:
  Chunks(const Backend& backend, std::span<const RnnLayer> layers)
      : steps_(layers.front().steps()), length_(layers.size() > 1 ? backend.chunk_steps(steps_) : steps_) {}

  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(1, (steps_ + length_ - 1) / length_));
  }
  [[nodiscard]] Chunk operator[](std::size_t n) const {
    const std::int64_t begin = static_cast<std::int64_t>(n) * length_;
    return {begin, std::min(begin + length_, steps_)};
  }

 private:
  std::int64_t steps_, length_;
};

/// `input_of(l)`: what layer l reads, an RnnInput.
template <typename InputOf>
void forward_stack(const StepContext& step, std::size_t number, std::span<RnnLayer> layers,
                   const InputOf& input_of) {
  if (layers.empty()) return;
  const Chunks chunks(step.backend, layers);
  if (chunks.count() == 1) {
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l].forward(step, input_of(l));
    return;
  }
  const auto work = [&](std::size_t l, std::size_t n) { layers[l].forward(step, input_of(l), chunks[n]); };
  step.replay(number, 0, [&] { step.backend.wavefront(layers.size(), chunks.count(), std::cref(work)); });
}

/// `gradients_of(l)`: an RnnGradients. `after(l, chunk)`: what else is to be done with the gradients of what
/// layer l has read in these steps, before the layer below goes on.
template <typename GradientsOf, typename After>
void backward_stack(const StepContext& step, std::size_t number, std::span<RnnLayer> layers,
                    const GradientsOf& gradients_of, const After& after) {
  if (layers.empty()) return;
  const Chunks chunks(step.backend, layers);
  if (chunks.count() == 1) {
    for (std::size_t l = layers.size(); l-- > 0;) {
      step.replay(number, 2 + static_cast<int>(l), [&] {
        layers[l].backward(step, gradients_of(l));
        after(l, chunks[0]);
      });
    }
    return;
  }
  // The parameters' gradients are a last chunk of their own, so that no layer below waits for these large
  // products, which fill the device while layers below still go through their steps.
  const auto work = [&](std::size_t from_top, std::size_t n) {
    const std::size_t l = layers.size() - 1 - from_top;
    if (n == chunks.count()) return layers[l].add_gradients(step);
    const Chunk chunk = chunks[chunks.count() - 1 - n];
    layers[l].backward(step, gradients_of(l), chunk);
    after(l, chunk);
  };
  step.replay(number, 1, [&] { step.backend.wavefront(layers.size(), chunks.count() + 1, std::cref(work)); });
}

}  // namespace nmt
