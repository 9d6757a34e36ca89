#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/learning_rate_scaling.hpp"
#include "ddl/sharded_sampler.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options.hpp"
#include "nmt_example/training/host_mirror.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/progress.hpp"

namespace nmt {

/// The part of training that is repeated: takes this rank's share of a global batch, computes its
/// gradients, reduces them over all ranks, clips them, and updates the model.
///
/// Once every shape of batch has been seen, a step on the cpu backend allocates nothing. What is
/// referred to must outlive this. Not thread-safe.
class TrainingStep {
 public:
  /// Collective; errors are agreed: those of `ddl::ShardedSampler`, `ddl::GradientReducer` and
  /// `single_worker_schedule`.
  TrainingStep(ddl::Context& context, const Options& options, const Dataset& dataset, Backend& backend,
               Model& model, Optimizer& optimizer);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// Goes on as after `done` steps, with the batches that were left by then. Errors as
  /// `ddl::ShardedSampler::restore`.
  void seek(std::uint64_t done, std::string_view sampler_state);

  struct Result {
    StepReport report;                ///< The same on all ranks, but for `seconds`.
    bool stop = false;                ///< Whether rank 0 wanted to stop: its clock decides for all.
    ddl::CheckpointVotes votes = {};  ///< The sums of all ranks' votes.
  };
  /// One step on all ranks. Collective. Throws `invalid_argument`, agreed, where training diverges: the
  /// loss or the gradient's norm is not finite. The parameters are then as they were before the step.
  Result run(bool want_stop = false, const ddl::CheckpointVotes& votes = {});

  /// Makes sure that all ranks have the same parameters. Collective; errors as `ddl::check_same_parameters`.
  void check_drift();

  /// Updates done.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_; }
  /// Which batches are left; the same on all ranks.
  [[nodiscard]] std::string sampler_state() const { return sampler_.state(); }
  [[nodiscard]] std::size_t steps_per_epoch() const noexcept { return sampler_.steps_per_epoch(); }

 private:
  double gradient_norm();

  ddl::Context& context_;
  const Options& options_;
  const Dataset& dataset_;
  Backend& backend_;
  Model& model_;
  Optimizer& optimizer_;
  ddl::ShardedSampler sampler_;
  HostMirror gradients_;
  ddl::GradientReducer reducer_;
  ddl::LearningRateScaling scaling_;
  ReadyFunction ready_;
  std::shared_ptr<void> norm_;
  ddl::ShardedBatch share_;
  Batch batch_;
  std::uint64_t done_ = 0;
};

}  // namespace nmt
