#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "nmt_example/backend/step_rules.hpp"

// How some optimisers scale the steps of each layer, a parameter, by its norms. The norms and the factors
// that follow from them stay in the backend's memory, so that no host waits for them.

namespace nmt {

/// The formulas are in optimizer.hpp.
enum class LayerRule : std::uint8_t { lamb, novograd, larc };

/// The same for all layers and steps.
struct LayerScaling {
  LayerRule rule = LayerRule::lamb;
  double weight_decay = 0, beta2 = 0, epsilon = 0, larc_eta = 0;
};

struct Layer {
  bool decays = true;   ///< Whether weight decay is for it.
  StepFactors factors;  ///< Set by `scale_layer`: those of this layer's step.
};

NMT_HOST_DEVICE double larc_factor(double eta, double norm, double gradient_norm, double learning_rate,
                                   double weight_decay) {
  constexpr double least = 1e-7, epsilon = 1e-7;
  if (norm == 0 || gradient_norm == 0) return 1;
  const double change = learning_rate * (gradient_norm + weight_decay * norm + epsilon);
  return std::min(1.0, std::max(least, eta * norm / change));
}

/// `squares`: two sums, of the squares of the layer's parameters and of what else was measured of them.
/// `second_moment`: NovoGrad's v of the layer, which moves. Does nothing else in a step that is not taken.
NMT_HOST_DEVICE void scale_layer(const LayerScaling& scaling, const StepFactors& step, const double* squares,
                                 float* second_moment, Layer& layer) {
  StepFactors& factors = layer.factors;
  factors = step;
  if (!step.takes) return;
  const double norm = std::sqrt(squares[0]), measured = std::sqrt(squares[1]);
  if (scaling.rule == LayerRule::lamb) {
    if (layer.decays && norm > 0 && measured > 0) factors.learning_rate *= norm / measured;
  } else if (scaling.rule == LayerRule::novograd) {
    const double square = squares[1] * step.gradient_scale * step.gradient_scale;
    const float v = *second_moment;
    *second_moment = static_cast<float>(v == 0 ? square : scaling.beta2 * v + (1 - scaling.beta2) * square);
    factors.gradient_scale /= std::sqrt(static_cast<double>(*second_moment)) + scaling.epsilon;
  } else {
    const double factor = larc_factor(scaling.larc_eta, norm, measured * step.gradient_scale,
                                      step.learning_rate, layer.decays ? scaling.weight_decay : 0.0);
    factors.gradient_scale *= factor;
    factors.decay_scale = factor;
  }
}

}  // namespace nmt
