#pragma once

#include <chrono>
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
#include "nmt_example/data/sentence_noise.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/gradient_sync.hpp"
#include "nmt_example/training/host_mirror.hpp"
#include "nmt_example/training/loss_scale.hpp"
#include "nmt_example/training/moving_average.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/progress.hpp"
#include "nmt_example/training/saved_run.hpp"

namespace nmt {

/// The part of training that repeats: takes this rank's share of a global batch, computes its gradients,
/// reduces them over all ranks, clips them, and updates the model.
///
/// Once every batch shape has occurred, a step on the cpu backend allocates only the reducer's small blocks
/// for each bucket. The constructor's arguments must outlive it. Not thread-safe.
class TrainingStep {
 public:
  /// Collective; errors are agreed: those of `ddl::ShardedSampler`, `GradientSync` and
  /// `single_worker_schedule`. `link`: see `connect_devices`.
  /// With `noise`, sentences are changed by it; `average` is kept up to date.
  TrainingStep(ddl::Context& context, const Options& options, const Dataset& dataset, Backend& backend,
               std::shared_ptr<DeviceLink> link, Model& model, Optimizer& optimizer,
               SentenceNoise* noise = nullptr, MovingAverage* average = nullptr);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;
  ~TrainingStep() { model_.on_part({}); }

  /// Fills the parameters, the optimiser's state, the averages and the reduction's state. The saved buckets
  /// replace the present ones, and with them the ranks' parts of a sharded update. Collective.
  void restore(const SavedRun& saved);
  /// Continues as after `done` steps, with the batches that are left then. Errors as
  /// `ddl::ShardedSampler::restore`.
  void seek(std::uint64_t done, std::string_view sampler_state);
  /// Multiplies the learning rates of all steps from now on.
  void scale_learning_rate(double factor) noexcept { learning_rate_factor_ = factor; }
  [[nodiscard]] GradientSync& gradients() noexcept { return gradients_; }
  [[nodiscard]] LossScale loss_scale() { return state().loss_scale; }
  void set_loss_scale(const LossScale& scale);
  /// The rounding residuals of --gradient_wire, which the next step adds; nothing for f32.
  [[nodiscard]] std::optional<std::vector<ddl::NamedTensor>> residuals() {
    if (options_.gradient_wire == ddl::DataType::f32) return {};
    return gradients_.residuals();
  }

  struct Result {
    StepReport report;                ///< The same on all ranks, except times.
    bool stop = false;                ///< Whether any rank wanted to stop.
    ddl::CheckpointVotes votes = {};  ///< The sums of all ranks' votes.
    /// That training diverges: the loss or the gradient's norm is not finite, or the perplexity is above
    /// 1e20. Later steps are not taken, nor is this one if its gradients are not finite. Empty: it was taken.
    std::string diverged = {};
    /// That the step was left out, because its gradients are not finite with the loss scale. Empty: it was
    /// not.
    std::string left_out = {};
  };
  /// How many more steps may be queued before `collect`, the same on all ranks. On hosts 1, as their work is
  /// done at once. On devices as many as between two lines of statistics, but fewer if these take longer than
  /// a signal or the end of the time should have to wait.
  [[nodiscard]] std::size_t room() const;
  /// Computes, reduces and takes a step on all ranks; on a device, queues that. Collective.
  void queue();
  /// The results of all queued steps, up to the first that diverged. Waits for them. Collective.
  std::vector<Result> collect(bool want_stop = false, const ddl::CheckpointVotes& votes = {});
  /// One step.
  Result run(bool want_stop = false, const ddl::CheckpointVotes& votes = {}) {
    queue();
    return std::move(collect(want_stop, votes).front());
  }

  /// Checks that all ranks have the same parameters. Collective; errors as `ddl::check_same_parameters`.
  void check_drift();

  /// Updates done.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_; }
  /// Which batches are left; the same on all ranks.
  [[nodiscard]] std::string sampler_state() const { return phases_.state(done_); }
  [[nodiscard]] const Phases& phases() const noexcept { return phases_; }

 private:
  void take_shards();
  void report_ready(std::size_t index);
  /// A step that is not collected yet.
  struct Queued {
    std::size_t words = 0;  // of this rank's share
    int phase = 0;
  };
  /// In the backend's memory.
  struct Memory {
    StepState state;
    double loss_sums[2];
    double magnitude;
  };

  [[nodiscard]] Memory* memory() const noexcept { return static_cast<Memory*>(memory_.get()); }
  [[nodiscard]] double* learning_rates() const noexcept { return static_cast<double*>(rates_memory_.get()); }
  [[nodiscard]] StepRecord* records() const noexcept {
    return static_cast<StepRecord*>(records_memory_.get());
  }
  [[nodiscard]] Tensor loss_sums() const { return {memory()->loss_sums, 1, 2, 2, ddl::DataType::f64}; }
  [[nodiscard]] StepState state();
  void set_state(const StepState& state);
  void begin_queue();
  void fill(std::span<const std::size_t> samples);
  void forward_backward();
  void micro_batch(std::span<const std::size_t> samples, GradientUse use);
  [[nodiscard]] StagedBatch staged(GradientUse use, std::int64_t loss_rows = 0);
  void compute(const StagedBatch& batch);
  const ddl::DeviceOutcome* recorded_step();
  [[nodiscard]] std::optional<std::int64_t> padded_alike();
  [[nodiscard]] GradientUse first_use();
  void measure_largest_gradient();
  [[nodiscard]] Result result_of(const StepRecord& record, double loss_sum, double words, int phase) const;

  ddl::Context& context_;
  const Options& options_;
  const Dataset& dataset_;
  Backend& backend_;
  Model& model_;
  Optimizer& optimizer_;
  SentenceNoise* noise_;
  MovingAverage* average_;
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
  bool gradients_are_zero_ = false;
  // Of recorded steps. The same on all ranks, it changes with the reducer's buckets and any rank's memory.
  std::uint64_t recording_ = 0;
  const void* workspace_ = nullptr;  // of the last step
  StepRules rules_;
  bool measures_;
  std::size_t most_queued_;    // that there is memory for
  std::size_t timely_queued_;  // that end soon enough
  std::shared_ptr<void> memory_, rates_memory_, records_memory_;
  std::vector<double> rates_;
  std::vector<Queued> queued_;
  std::vector<StepRecord> records_of_queue_;
  std::vector<double> sums_;
  std::chrono::steady_clock::time_point begin_;  // of the oldest queued step
  double learning_rate_factor_ = 1;
  std::uint64_t done_ = 0;
};

}  // namespace nmt
