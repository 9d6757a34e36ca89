#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ddl/context.hpp"

namespace ddl {

/// How the learning rate grows with the number of ranks n (the global batch is n times as large).
enum class ScalingRule {
  none,         ///< Unchanged.
  linear,       ///< times n (Goyal et al. 2017), for SGD.
  square_root,  ///< times sqrt(n) (Krizhevsky 2014), for adaptive optimisers.
};

struct LearningRateScalingOptions {
  ScalingRule rule = ScalingRule::none;
  /// Steps over which the factor grows linearly from 1 to its full value (Goyal et al., "gradual
  /// warm-up"); 0: at once.
  std::uint64_t ramp_steps = 0;
};

/// A learning-rate schedule adjusted for the number of ranks. Construction logs on rank 0 what it
/// changed and why. Pure after construction; no communication.
class LearningRateScaling {
 public:
  /// `schedule(step)` is the single-worker learning rate of a step, counted from 0.
  LearningRateScaling(Context& context, std::function<double(std::uint64_t)> schedule,
                      LearningRateScalingOptions options = {});

  [[nodiscard]] double learning_rate(std::uint64_t step) const;
  /// The full factor: 1, n or sqrt(n).
  [[nodiscard]] double factor() const noexcept { return factor_; }

 private:
  std::function<double(std::uint64_t)> schedule_;
  LearningRateScalingOptions options_;
  double factor_;
};

/// "none", "linear" or "square_root"; throws `invalid_argument` naming the choices.
ScalingRule parse_scaling_rule(const std::string& name);

}  // namespace ddl
