#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "ddl/learning_rate_scaling.hpp"
#include "ddl/sharded_sampler.hpp"
#include "ddl/timeline.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/gradient_sync.hpp"
#include "nmt_example/training/host_mirror.hpp"
#include "nmt_example/training/loss_scale.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/progress.hpp"

namespace nmt {

/// The part of training that repeats: takes this rank's share of a global batch, computes its gradients,
/// reduces them over all ranks, clips them, and updates the model.
///
/// Once every batch shape has occurred, a step on the cpu backend allocates only the reducer's small blocks
/// for each bucket. The constructor's arguments must outlive it. Not thread-safe.
class TrainingStep {
 public:
  /// Collective; errors are agreed: those of `ddl::ShardedSampler`, `GradientSync` and
  /// `single_worker_schedule`.
  TrainingStep(ddl::Context& context, const Options& options, const Dataset& dataset, Backend& backend,
               Model& model, Optimizer& optimizer);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;
  ~TrainingStep() { model_.on_part({}); }

  /// Continues as after `done` steps, with the batches that are left then. Errors as
  /// `ddl::ShardedSampler::restore`.
  void seek(std::uint64_t done, std::string_view sampler_state);
  /// Multiplies the learning rates of all steps from now on.
  void scale_learning_rate(double factor) noexcept { learning_rate_factor_ = factor; }
  [[nodiscard]] GradientSync& gradients() noexcept { return gradients_; }
  [[nodiscard]] LossScale& loss_scale() noexcept { return loss_scale_; }
  /// The rounding residuals of --gradient_wire, which the next step adds; nothing for f32.
  [[nodiscard]] std::optional<std::vector<ddl::NamedTensor>> residuals() {
    if (options_.gradient_wire == ddl::DataType::f32) return {};
    return gradients_.residuals();
  }

  struct Result {
    StepReport report;                ///< The same on all ranks, except `seconds`.
    bool stop = false;                ///< Whether any rank wanted to stop.
    ddl::CheckpointVotes votes = {};  ///< The sums of all ranks' votes.
    /// Why the step was not taken: training diverges, that is, the loss or the gradient's norm is not finite,
    /// or the perplexity is above 1e20. Empty: it was taken. Otherwise the parameters are unchanged.
    std::string diverged = {};
    /// That the step was left out, because its gradients are not finite with the loss scale. Empty: it was
    /// not.
    std::string left_out = {};
  };
  /// Runs one step on all ranks. Collective.
  Result run(bool want_stop = false, const ddl::CheckpointVotes& votes = {});

  /// Checks that all ranks have the same parameters. Collective; errors as `ddl::check_same_parameters`.
  void check_drift();

  /// Updates done.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_; }
  /// Which batches are left; the same on all ranks.
  [[nodiscard]] std::string sampler_state() const { return phases_.state(done_); }
  [[nodiscard]] const Phases& phases() const noexcept { return phases_; }

 private:
  void report_ready(std::size_t index);
  BatchLoss forward_backward();
  void micro_batch(std::span<const std::size_t> samples, GradientUse use, BatchLoss& sum);
  void update(double gradient_scale, double learning_rate);
  double largest_gradient();

  ddl::Context& context_;
  const Options& options_;
  const Dataset& dataset_;
  Backend& backend_;
  Model& model_;
  Optimizer& optimizer_;
  Phases phases_;
  GradientSync gradients_;
  ddl::LearningRateScaling scaling_;
  ReadyFunction ready_;
  std::optional<ddl::Timeline::Scope> part_;  // of the model's work
  std::size_t source_embedding_;              // indices of parameters; equal if the vocabulary is shared
  std::size_t target_embedding_;
  std::vector<std::int32_t> rows_;
  ddl::ShardedBatch share_;
  Batch batch_;
  std::size_t words_ = 0;  // of this rank's share
  bool gradients_are_zero_ = false;
  LossScale loss_scale_;
  int left_out_ = 0;  // steps without a break until now
  double learning_rate_factor_ = 1;
  std::uint64_t done_ = 0;
};

}  // namespace nmt
