#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ddl/context.hpp"

namespace ddl {

/// How the learning rate grows with the number of ranks n (the global batch is n times as large). One factor
/// for all parameters: what scales each layer by its own norms (LARS, You et al. 2017; LAMB, You et al. 2020)
/// is an optimiser's matter, and takes `none` or `square_root` here.
enum class ScalingRule {
  none,         ///< Unchanged.
  linear,       ///< times n (Goyal et al. 2017), for SGD.
  square_root,  ///< times sqrt(n) (Krizhevsky 2014), for adaptive optimisers.
};

/// What a schedule that was made for one worker counts, now that an update sees n times as many samples.
enum class ScheduleUnit {
  /// Updates: update s takes the rate of the single worker's update s, which had seen an n-th of the samples.
  updates,
  /// Samples: update s takes the rate of the single worker's update s n, which had seen as many samples.
  /// Warm-up and decay then come after as many samples, or epochs, as they did, in an n-th of the updates: n
  /// times the batch does not act n times too late. A run that goes on with another n has the schedule of one
  /// that always had it.
  samples,
};

struct LearningRateScalingOptions {
  ScalingRule rule = ScalingRule::none;
  /// Steps over which the factor grows linearly from 1 to its full value (Goyal et al., "gradual
  /// warm-up"); 0: at once. Updates of this job, whatever `unit` says: they see n times as many samples as
  /// the single worker's.
  std::uint64_t ramp_steps = 0;
  ScheduleUnit unit = ScheduleUnit::updates;
};

/// What a rule makes of a single worker's learning rate, with n = `ranks`: 1, n or sqrt(n), growing linearly
/// from 1 over the first `ramp_steps` steps.
double learning_rate_factor(ScalingRule rule, int ranks, std::uint64_t step = 0,
                            std::uint64_t ramp_steps = 0);

/// A learning-rate schedule adjusted for the number of ranks. Construction logs on rank 0 what it
/// changed and why. Pure after construction; no communication.
class LearningRateScaling {
 public:
  /// `schedule(step)` is the single-worker learning rate of a step, counted from 0. With
  /// `ScheduleUnit::samples` it is asked about every n-th step only, up to n times the job's last.
  LearningRateScaling(const Context& context, std::function<double(std::uint64_t)> schedule,
                      LearningRateScalingOptions options = {});

  /// Of the job's update `step`, counted from 0.
  [[nodiscard]] double learning_rate(std::uint64_t step) const;
  /// The full factor: 1, n or sqrt(n).
  [[nodiscard]] double factor() const noexcept { return factor_; }

 private:
  std::function<double(std::uint64_t)> schedule_;
  LearningRateScalingOptions options_;
  int ranks_;
  double factor_;
  std::uint64_t schedule_stride_;
};

/// "none", "linear" or "square_root"; throws `invalid_argument` naming the choices.
ScalingRule parse_scaling_rule(const std::string& name);
/// "updates" or "samples"; throws `invalid_argument` naming the choices.
ScheduleUnit parse_schedule_unit(const std::string& name);

}  // namespace ddl
