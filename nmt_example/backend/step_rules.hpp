#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ddl/device_outcome.hpp"
#include "nmt_example/backend/cell_row.hpp"
#include "nmt_example/options/choices.hpp"

// How a step of training ends, decided where its gradients are: on a device, the host queues further steps
// before it knows the result. Everything here is in the backend's memory, and copied there byte by byte.

namespace nmt {

/// The factor of the loss in mixed precision, which keeps small gradients from vanishing in 16 bits. Steps
/// with gradients that are not finite are left out; all ranks see the same reduced gradients, and so decide
/// alike. Rules (--loss_scaling):
/// - off: 1;
/// - static: --loss_scale for all steps;
/// - backoff (OpenSeq2Seq's): begins with --loss_scale, its largest value. An overflow halves it, down to 1;
///   it is doubled when the number of steps since the last overflow is a multiple of --loss_scale_window;
/// - log_max (OpenSeq2Seq's): with x = log2 of the largest absolute gradient of a step, without the scale, or
///   16 after an overflow, and the means of x (decay 0.99) and x^2 (decay 0.999), both corrected for their
///   start at 0: 2^(16 - (mean + 3.09 deviations)), between 1 and --loss_scale; 1 in the first step.
struct LossScale {
  LossScaling rule = LossScaling::off;
  double largest = 1;  ///< The scale's largest value.
  std::int64_t window = 1;

  double value = 1;                           ///< Of the next step.
  std::int64_t step = 0, last_overflow = -1;  ///< Of backoff.
  double mean = 0, mean_square = 0;           ///< Of log_max, not corrected.

  /// Whether steps with gradients that are not finite are left out, instead of ending the run.
  [[nodiscard]] NMT_HOST_DEVICE bool skips() const { return rule != LossScaling::off; }
  /// Whether `end_step` needs the largest gradient.
  [[nodiscard]] NMT_HOST_DEVICE bool measures() const { return rule == LossScaling::log_max; }
  /// A step has ended. `overflow`: its gradients are not finite. `magnitude`: the largest absolute gradient
  /// without the scale; read if `measures()` and there was no overflow.
  NMT_HOST_DEVICE void end_step(bool overflow, double magnitude = 0) {
    constexpr double least = 1, backoff_factor = 2;
    // Of log_max: decays of the means, the exponent that an overflow stands for and that gradients must stay
    // below, and the deviations of a normal distribution that 99.9% of values stay below.
    constexpr double mean_decay = 0.99, square_decay = 0.999, overflow_exponent = 16, deviations = 3.09;
    const std::int64_t number = step++;
    if (rule == LossScaling::backoff) {
      if (overflow) {
        last_overflow = number;
        value = std::max(least, value / backoff_factor);
      } else if ((number - last_overflow) % window == 0) {
        value = std::min(largest, value * backoff_factor);
      }
    } else if (rule == LossScaling::log_max) {
      // Gradients of zero, as of a batch without words, say nothing.
      if (!overflow && magnitude == 0) return;
      const double x = overflow ? overflow_exponent : std::log2(magnitude);
      mean = mean_decay * mean + (1 - mean_decay) * x;
      mean_square = square_decay * mean_square + (1 - square_decay) * x * x;
      const auto steps = static_cast<double>(step);
      const double corrected = mean / (1 - std::pow(mean_decay, steps));
      const double square = mean_square / (1 - std::pow(square_decay, steps));
      const double deviation = std::sqrt(std::max(0.0, square - corrected * corrected));
      const double wanted = std::exp2(overflow_exponent - (corrected + deviations * deviation));
      value = std::min(largest, std::max(least, wanted));
    }
  }
};

/// What a step's update multiplies by.
struct StepFactors {
  double gradient_scale = 1;
  double learning_rate = 0;
  double correction1 = 1, correction2 = 1;  ///< 1 - beta^step, of Adam's moving means.
  std::int64_t step = 1;                    ///< Counts from 1.
  bool takes = true;       ///< Whether the step is taken; if not, the update changes nothing.
  double decay_scale = 1;  ///< Of the weight decay.
};

/// `step` counts from 1.
NMT_HOST_DEVICE StepFactors step_factors(double gradient_scale, double learning_rate, double beta1,
                                         double beta2, std::int64_t step) {
  return {gradient_scale,
          learning_rate,
          1.0 - std::pow(beta1, static_cast<double>(step)),
          1.0 - std::pow(beta2, static_cast<double>(step)),
          step,
          true};
}

/// For a step of gradient descent that moves the average of parameters as update `step`, counted from 1,
/// does: by 1 - d of its distance, d = min(decay, (1 + step) / (10 + step)), so that the first parameters are
/// soon forgotten (TensorFlow's ExponentialMovingAverage with num_updates).
NMT_HOST_DEVICE StepFactors average_factors(double decay, std::int64_t step) {
  const auto t = static_cast<double>(step);
  return {.gradient_scale = -1, .learning_rate = 1 - std::min(decay, (1 + t) / (10 + t)), .step = step};
}

/// What training carries from step to step.
struct StepState {
  LossScale loss_scale;
  std::int64_t done = 0;        ///< Updates.
  std::int32_t left_out = 0;    ///< Steps without a break that were left out until now.
  bool halted = false;          ///< Training has diverged: no later step is taken.
  StepFactors factors;          ///< Of the newest step.
  StepFactors average_factors;  ///< The same for the parameters' moving average.
};

/// The same in all steps.
struct StepRules {
  double max_gradient_norm = 0;
  double beta1 = 0, beta2 = 0;
  /// The loss is the sum over words divided by the sentences of the batch, as tensorflow/nmt's; else by
  /// words.
  bool loss_per_sentence = false;
  double average_decay = 0;  ///< Of the parameters' moving average.
};

/// A step that has been computed and reduced.
struct StepInput {
  double sentences = 0;                    ///< Of all ranks.
  const double* learning_rates = nullptr;  ///< Of the updates after `first` done ones.
  std::int64_t first = 0;
  const ddl::DeviceOutcome* reduced = nullptr;
  const double* loss_sum = nullptr;   ///< Of this rank.
  const double* magnitude = nullptr;  ///< The largest absolute sum of gradients; null unless it is needed.
};

enum class StepEnd : std::uint8_t {
  taken,
  left_out,  ///< Because its gradients are not finite with the loss scale.
  diverged,  ///< Its gradients are not finite.
  halted,    ///< It came after one that diverged.
};

/// What became of a step.
struct StepRecord {
  StepEnd end = StepEnd::halted;
  std::int64_t done = 0;  ///< Updates, this one included.
  double loss_sum = 0;    ///< Of this rank.
  double weight = 0;      ///< Of all ranks.
  double norm = 0;        ///< Of the mean gradients, before clipping.
  double learning_rate = 0;
  double loss_scale = 0, next_loss_scale = 0;
};

/// Steps without a break that are left out because their gradients are not finite, before that is divergence.
inline constexpr std::int32_t most_left_out = 50;

NMT_HOST_DEVICE void end_step(const StepRules& rules, const StepInput& input, StepState& state,
                              StepRecord& record) {
  state.factors.takes = state.average_factors.takes = false;
  record = {};
  if (state.halted) return;
  const ddl::DeviceOutcome& reduced = *input.reduced;
  LossScale& scale = state.loss_scale;
  const double mean_to_loss = rules.loss_per_sentence ? reduced.weight / input.sentences : 1.0;
  const double gradient_scale = reduced.scale * mean_to_loss / scale.value;
  record.loss_sum = *input.loss_sum;
  record.weight = reduced.weight;
  record.norm = reduced.norm * mean_to_loss / scale.value;
  record.loss_scale = scale.value;
  const bool finite = reduced.finite != 0;
  if (!finite && (!scale.skips() || ++state.left_out > most_left_out)) {
    state.halted = true;
    record.end = StepEnd::diverged;
  } else if (!finite) {
    scale.end_step(true, 0);
    record.end = StepEnd::left_out;
  } else {
    state.left_out = 0;
    scale.end_step(false, scale.measures() ? *input.magnitude * gradient_scale : 0);
    const double clip = record.norm > rules.max_gradient_norm ? rules.max_gradient_norm / record.norm : 1.0;
    record.learning_rate = input.learning_rates[state.done - input.first];
    ++state.done;
    state.factors =
        step_factors(gradient_scale * clip, record.learning_rate, rules.beta1, rules.beta2, state.done);
    state.average_factors = average_factors(rules.average_decay, state.done);
    record.end = StepEnd::taken;
  }
  record.done = state.done;
  record.next_loss_scale = scale.value;
}

}  // namespace nmt
