#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// The factor of the loss in mixed precision, which keeps small gradients from vanishing in 16 bits. Steps
/// with gradients that are not finite are left out; all ranks see the same reduced gradients, and so decide
/// alike. Rules (--loss_scaling):
/// - off: 1;
/// - static: --loss_scale for all steps;
/// - backoff (OpenSeq2Seq's): begins with --loss_scale, its largest value. After a step with an overflow it
/// is
///   halved, but is at least 1; it is doubled when the number of steps since the last overflow is a multiple
///   of
///   --loss_scale_window;
/// - log_max (OpenSeq2Seq's): with x = log2 of the largest absolute gradient of a step, without the scale, or
///   16 after an overflow, and the means of x (decay 0.99) and x^2 (decay 0.999), both corrected for their
///   start at 0: 2^(16 - (mean + 3.09 deviations)), between 1 and --loss_scale; 1 in the first step.
class LossScale {
 public:
  explicit LossScale(const Options& options);

  /// Of the next step; a power of two but for log_max and a static one that is none.
  [[nodiscard]] double value() const noexcept { return scale_; }
  /// Whether steps with gradients that are not finite are left out, instead of ending the run.
  [[nodiscard]] bool skips() const noexcept { return rule_ != LossScaling::off; }
  /// Whether `end_step` needs the largest gradient.
  [[nodiscard]] bool measures() const noexcept { return rule_ == LossScaling::log_max; }
  /// A step has ended. `overflow`: its gradients are not finite. `largest`: the largest absolute gradient
  /// without the scale; read if `measures()` and there was no overflow.
  void end_step(bool overflow, double largest = 0);

  /// For a checkpoint: JSON; empty if nothing changes from step to step.
  [[nodiscard]] std::string state() const;
  /// Continues as `state` says. An empty one, or one of another rule, changes nothing. Throws `corrupt_data`.
  void restore(std::string_view state);

 private:
  LossScaling rule_;
  double largest_scale_, scale_;
  std::int64_t window_;
  std::int64_t step_ = 0, last_overflow_ = -1;  // of backoff
  double mean_ = 0, mean_square_ = 0;           // of log_max, not corrected
};

}  // namespace nmt
