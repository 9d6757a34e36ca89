#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ddl/context.hpp"

namespace ddl {

/// How the learning rate grows with the number of ranks n, as the global batch is n times as large. One
/// factor for all parameters: optimisers that scale each layer by its own norms (LARS, You et al. 2017; LAMB,
/// You et al. 2020) use `none` or `square_root` here.
enum class ScalingRule {
  none,         ///< Unchanged.
  linear,       ///< Times n (Goyal et al. 2017), for SGD.
  square_root,  ///< Times sqrt(n) (Krizhevsky 2014), for adaptive optimisers.
};

/// What a single worker's schedule counts in a job of n ranks, where an update sees n times as many samples.
enum class ScheduleUnit {
  /// Updates: update s takes the rate of the single worker's update s, which had seen 1/n of the samples.
  updates,
  /// Samples: update s takes the rate of the single worker's update s n, which had seen the same number of
  /// samples. Warm-up and decay then come after the same number of samples or epochs, in 1/n of the updates.
  /// A run that is resumed with another n has the schedule of a run that always had it.
  samples,
};

/// Settings of a `LearningRateScaling`.
struct LearningRateScalingOptions {
  ScalingRule rule = ScalingRule::none;  ///< How the rate grows with the number of ranks.
  /// Number of steps over which the factor grows linearly from 1 to its full value (Goyal et al., "gradual
  /// warm-up"); 0: none. Counts updates of this job, whatever `unit` says.
  std::uint64_t ramp_steps = 0;
  ScheduleUnit unit = ScheduleUnit::updates;  ///< What the schedule's steps count.
};

/// The factor by which `rule` multiplies a single worker's learning rate at update `step` with n = `ranks`:
/// 1, n or sqrt(n), growing linearly from 1 over the first `ramp_steps` steps.
double learning_rate_factor(ScalingRule rule, int ranks, std::uint64_t step = 0,
                            std::uint64_t ramp_steps = 0);

/// A single worker's learning-rate schedule, adjusted for the number of ranks. No communication; after
/// construction as thread-safe as `schedule`.
class LearningRateScaling {
 public:
  /// `schedule(step)` is the single worker's learning rate at update `step`, counted from 0. With
  /// `ScheduleUnit::samples` only every n-th step is asked for, up to n times the job's last. Logs on rank 0
  /// what changes and why. Throws `invalid_argument` for an empty function.
  LearningRateScaling(const Context& context, std::function<double(std::uint64_t)> schedule,
                      LearningRateScalingOptions options = {});

  /// The learning rate at the job's update `step`, counted from 0.
  [[nodiscard]] double learning_rate(std::uint64_t step) const;
  /// The factor after the ramp: 1, n or sqrt(n).
  [[nodiscard]] double factor() const noexcept { return factor_; }

 private:
  std::function<double(std::uint64_t)> schedule_;
  LearningRateScalingOptions options_;
  int ranks_;
  double factor_;
  std::uint64_t schedule_stride_;
};

}  // namespace ddl
