#include "nmt_example/training/training_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "ddl/drift_check.hpp"
#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/learning_rate_schedule.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt {
namespace {

StepRules rules_of(const Options& options) {
  return {.max_gradient_norm = options.max_gradient_norm,
          .beta1 = options.adam_beta1,
          .beta2 = options.adam_beta2,
          .loss_per_sentence = options.loss_per == LossPer::sentence,
          .average_decay = options.ema_decay};
}

ddl::LearningRateScaling scaled_schedule(ddl::Context& context, const Options& options) {
  Options schedule;
  context.on_all_ranks("learning rate", [&] { schedule = single_worker_schedule(options, context.size()); });
  return {context,
          [schedule](std::uint64_t step) { return learning_rate_at(schedule, step); },
          {.rule = options.lr_scaling,
           .ramp_steps = warmup_updates(options, context.size()),
           .unit = options.lr_schedule_unit}};
}

/// Steps that are queued before one has been timed, and seconds for which later ones may keep the device
/// busy.
constexpr std::size_t first_queued = 8;
constexpr double most_queued_seconds = 2;

/// There is memory for so many.
std::size_t most_queued(const Options& options, const Backend& backend) {
  constexpr std::int64_t most = 1024;
  return backend.host_accessible()
             ? 1
             : static_cast<std::size_t>(std::clamp<std::int64_t>(options.steps_per_stats, 1, most));
}

/// The index of a side's embedding; that of no parameter if the side has none.
std::size_t embedding_of(const Model& model, const ParameterLayout& layout, Side side) {
  const std::string name = embedding_name(model.shape(), side);
  return layout.contains(name) ? layout.index_of(name) : layout.parameters.size();
}

}  // namespace

TrainingStep::TrainingStep(ddl::Context& context, const Options& options, const Dataset& dataset,
                           Backend& backend, std::shared_ptr<DeviceLink> link, Model& model,
                           Optimizer& optimizer, SentenceNoise* noise, MovingAverage* average)
    : context_(context),
      options_(options),
      dataset_(dataset),
      backend_(backend),
      model_(model),
      optimizer_(optimizer),
      noise_(noise),
      average_(average),
      phases_(context, options, dataset),
      gradients_(context, options, backend, std::move(link), model),
      scaling_(scaled_schedule(context, options)),
      ready_([this](std::size_t index) { report_ready(index); }),
      source_embedding_(embedding_of(model, model.parameters().layout(), Side::encoder)),
      target_embedding_(embedding_of(model, model.parameters().layout(), Side::decoder)),
      rules_(rules_of(options)),
      measures_(make_loss_scale(options, activation_type(options, backend)).measures()),
      most_queued_(most_queued(options, backend)),
      timely_queued_(std::min(most_queued_, first_queued)),
      memory_(backend.allocate(sizeof(Memory))),
      rates_memory_(backend.allocate(most_queued_ * sizeof(double))),
      records_memory_(backend.allocate(most_queued_ * sizeof(StepRecord))) {
  StepState first;
  first.loss_scale = make_loss_scale(options, activation_type(options, backend));
  set_state(first);
  model.scale_loss(&memory()->state.loss_scale.value);
  rates_.resize(most_queued_);
  queued_.reserve(most_queued_);
  records_of_queue_.reserve(most_queued_);
  model.on_part([this](std::string_view part) {
    part_.reset();
    part_.emplace(context_.timeline().scope(part));
    gradients_.part(part);
  });
  take_shards();
  for (const BatchLimits& limits : batch_limits(options, dataset)) {
    batch_.reserve(static_cast<std::size_t>(limits.sentences), static_cast<std::size_t>(limits.source_steps),
                   static_cast<std::size_t>(limits.target_steps) - 1);
    share_.samples.reserve(static_cast<std::size_t>(limits.sentences));
  }
}

void TrainingStep::take_shards() {
  if (!options_.sharded_update) return;
  optimizer_.take(gradients_.shards(),
                  [this](const Tensor& sums) { gradients_.reduce_over_ranks(sums, ddl::ReduceOp::sum); });
}

void TrainingStep::restore(const SavedRun& saved) {
  saved.restore(context_, gradients_);
  ++recording_;
  take_shards();
  saved.restore(backend_, model_.parameters(), optimizer_);
  if (average_ != nullptr && !saved.restore(backend_, *average_)) average_->restart();
}

StepState TrainingStep::state() {
  StepState now;
  backend_.download_bytes(&memory()->state, std::as_writable_bytes(std::span(&now, 1)));
  return now;
}

void TrainingStep::set_state(const StepState& state) {
  backend_.upload_bytes(&memory()->state, std::as_bytes(std::span(&state, 1)));
}

void TrainingStep::set_loss_scale(const LossScale& scale) {
  StepState now = state();
  now.loss_scale = scale;
  set_state(now);
}

void TrainingStep::seek(std::uint64_t done, std::string_view sampler_state) {
  phases_.restore(done, sampler_state);
  done_ = done;
  StepState now = state();
  now.done = static_cast<std::int64_t>(done);
  now.left_out = 0;
  now.halted = false;
  set_state(now);
}

void TrainingStep::check_drift() {
  HostMirror values(backend_, values_of(model_.parameters()));
  values.download();
  ddl::check_same_parameters(context_, values.parameters());
}

void TrainingStep::report_ready(std::size_t index) {
  const bool is_source = index == source_embedding_;
  const bool is_target = index == target_embedding_;
  // Every row of a table that is the output layer's kernel has a gradient.
  const bool all_rows = is_target && model_.shape().tie_output;
  if (all_rows || (!is_source && !is_target)) return gradients_.ready(index, {});
  rows_.clear();
  if (is_source) rows_.insert(rows_.end(), batch_.source.begin(), batch_.source.end());
  if (is_target) rows_.insert(rows_.end(), batch_.target_in.begin(), batch_.target_in.end());
  gradients_.ready(index, rows_);
}

void TrainingStep::fill(std::span<const std::size_t> samples) {
  const auto scope = context_.timeline().scope("batch");
  fill_batch(dataset_, samples, batch_, noise_, share_.step);
  queued_.back().words += options_.language_model ? batch_.target_tokens : batch_.words;
}

/// What the step's first backward pass does with the gradients.
GradientUse TrainingStep::first_use() {
  return std::exchange(gradients_are_zero_, false) ? GradientUse::add : GradientUse::replace;
}

/// Computes the gradients of this rank's share of the batch, in micro-batches.
void TrainingStep::forward_backward() {
  std::span<const std::size_t> left = share_.samples;
  const std::size_t most =
      options_.micro_batch_size > 0 ? static_cast<std::size_t>(options_.micro_batch_size) : left.size();
  GradientUse use = first_use();
  for (; left.size() > most; left = left.subspan(most), use = GradientUse::add) {
    const auto part = [&] { micro_batch(left.first(most), use); };
    gradients_.accumulate(std::ref(part));
  }
  micro_batch(left, use);
}

void TrainingStep::micro_batch(std::span<const std::size_t> samples, GradientUse use) {
  fill(samples);
  gradients_.begin(static_cast<double>(batch_.target_tokens));
  compute(staged(use));
}

/// Dropout belongs to the batch, so it uses the sampler's step and not the optimiser's.
StagedBatch TrainingStep::staged(GradientUse use, std::int64_t loss_rows) {
  return model_.stage(view_of(batch_), dropout_settings(options_, share_.step), use, loss_rows);
}

void TrainingStep::compute(const StagedBatch& batch) {
  model_.forward_backward(batch, options_.label_smoothing, ready_, loss_sums());
  part_.reset();
  gradients_.part({});
}

/// Computes and reduces the gradients of this rank's share as one piece of work, collectives included, which
/// the backend may record.
const ddl::DeviceOutcome* TrainingStep::recorded_step() {
  fill(share_.samples);
  const std::optional<std::int64_t> loss_rows = padded_alike();
  const StagedBatch batch = staged(first_use(), loss_rows.value_or(0));
  if (!loss_rows) {
    gradients_.begin(static_cast<double>(batch_.target_tokens));
    compute(batch);
    return gradients_.finish();
  }
  const auto step = [&] {
    compute(batch);
    gradients_.finish(batch.words);
  };
  const std::uint64_t shape = mixed(batch.key, static_cast<std::uint64_t>(batch.loss_rows));
  backend_.replay({.group = mixed(shape, recording_), .of_all_ranks = true}, std::cref(step));
  return gradients_.outcome();
}

/// Gives the batches of all ranks one shape. Returns the rows of their losses, or nothing if a step of these
/// batches cannot be recorded. Collective.
std::optional<std::int64_t> TrainingStep::padded_alike() {
  const auto sentences = static_cast<double>(batch_.size());
  const bool has_moved = std::exchange(workspace_, model_.workspace()) != model_.workspace();
  double most[] = {sentences,
                   -sentences,
                   static_cast<double>(batch_.source_steps),
                   static_cast<double>(batch_.target_steps),
                   static_cast<double>(batch_.target_tokens),
                   has_moved ? 1.0 : 0.0};
  context_.communicator().all_reduce(std::span(most), ddl::ReduceOp::max);
  // A rank that records its steps anew must not be alone.
  if (most[5] > 0) ++recording_;
  const BatchLimits sizes{static_cast<std::int64_t>(most[0]), static_cast<std::int64_t>(most[2]),
                          static_cast<std::int64_t>(most[3])};
  const bool alike = sizes.sentences > 0 && most[0] == -most[1];
  if (!alike || !model_.is_within_limits(sizes) || !gradients_.can_be_recorded()) return std::nullopt;
  pad_batch(batch_, static_cast<std::size_t>(sizes.source_steps),
            static_cast<std::size_t>(sizes.target_steps));
  return static_cast<std::int64_t>(most[4]);
}

/// The largest absolute sum of gradients over all ranks, with the loss scale.
void TrainingStep::measure_largest_gradient() {
  const Tensor largest(&memory()->magnitude, 1, 1, 1, ddl::DataType::f64);
  backend_.zero(largest);
  const ParameterSet& parameters = model_.parameters();
  if (!options_.sharded_update) return backend_.largest_magnitude(parameters.gradients(), largest);
  for (const ddl::GradientPiece& piece : gradients_.shards()) {
    const Tensor gradient = parameters.gradient(piece.gradient);
    backend_.largest_magnitude(
        gradient.reshaped(1, gradient.size())
            .col_range(static_cast<std::int64_t>(piece.first), static_cast<std::int64_t>(piece.count)),
        largest);
  }
  gradients_.reduce_over_ranks(largest, ddl::ReduceOp::max);
}

std::size_t TrainingStep::room() const {
  // A phase's steps are queued when it is known that they belong to it.
  const std::uint64_t next = done_ + queued_.size();
  const std::size_t most = phases_.number(next) == phases_.number(done_) ? timely_queued_ : 0;
  return most - std::min(most, queued_.size());
}

void TrainingStep::begin_queue() {
  begin_ = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < rates_.size(); ++i)
    rates_[i] = learning_rate_factor_ * scaling_.learning_rate(done_ + i);
  backend_.upload_bytes(learning_rates(), std::as_bytes(std::span(rates_)));
}

void TrainingStep::queue() {
  const auto scope = context_.timeline().scope("step");
  if (queued_.empty()) begin_queue();
  queued_.push_back({.phase = phases_.number(done_)});
  phases_.next(done_, share_);
  backend_.zero(loss_sums());
  const ddl::DeviceOutcome* reduced = nullptr;
  if (options_.step_graph) {
    reduced = recorded_step();
  } else {
    forward_backward();
    reduced = gradients_.finish();
  }
  const auto update = context_.timeline().scope("optimizer");
  if (measures_) measure_largest_gradient();
  StepState& state = memory()->state;
  backend_.end_step(rules_,
                    {.sentences = static_cast<double>(share_.global_samples),
                     .learning_rates = learning_rates(),
                     .first = static_cast<std::int64_t>(done_),
                     .reduced = reduced,
                     .loss_sum = memory()->loss_sums,
                     .magnitude = &memory()->magnitude},
                    &state, records() + queued_.size() - 1);
  optimizer_.update(&state.factors);
  gradients_are_zero_ = optimizer_.is_whole();
  if (options_.sharded_update) gradients_.gather();
  if (average_ != nullptr) average_->update(&state.average_factors);
}

std::vector<TrainingStep::Result> TrainingStep::collect(bool want_stop, const ddl::CheckpointVotes& votes) {
  gradients_.check();
  records_of_queue_.resize(queued_.size());
  backend_.download_bytes(records(), std::as_writable_bytes(std::span(records_of_queue_)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() /
                         static_cast<double>(queued_.size());
  sums_.assign({want_stop ? 1.0 : 0.0, votes[0], votes[1], votes[2], seconds});
  const std::size_t of_steps = sums_.size();
  for (std::size_t i = 0; i < queued_.size(); ++i) {
    sums_.push_back(records_of_queue_[i].loss_sum);
    sums_.push_back(static_cast<double>(queued_[i].words));
  }
  context_.communicator().all_reduce(std::span(sums_));
  const double timely = most_queued_seconds * context_.size() / sums_[4];
  timely_queued_ = timely < static_cast<double>(most_queued_)
                       ? std::max<std::size_t>(static_cast<std::size_t>(timely), 1)
                       : most_queued_;

  std::vector<Result> results;
  for (std::size_t i = 0; i < queued_.size(); ++i) {
    const StepRecord& record = records_of_queue_[i];
    Result result = result_of(record, sums_[of_steps + 2 * i], sums_[of_steps + 2 * i + 1], queued_[i].phase);
    result.report.seconds = seconds;
    result.report.hidden = gradients_.hidden_share();
    result.stop = sums_[0] > 0;
    result.votes = {sums_[1], sums_[2], sums_[3]};
    results.push_back(std::move(result));
    done_ = static_cast<std::uint64_t>(record.done);
    if (!results.back().diverged.empty()) break;
  }
  queued_.clear();
  return results;
}

TrainingStep::Result TrainingStep::result_of(const StepRecord& record, double loss_sum, double words,
                                             int phase) const {
  Result result{.report = {.step = record.done,
                           .learning_rate = record.learning_rate,
                           .loss_sum = loss_sum,
                           .target_tokens = record.weight,
                           .words = words,
                           .gradient_norm = record.norm,
                           .phase = phase}};
  const double loss_of_word = loss_sum / record.weight;
  const bool is_taken = record.end == StepEnd::taken;
  if (record.end == StepEnd::left_out) {
    result.left_out = fmt::format(
        "a batch after step {} is left out: its gradients are not finite with loss "
        "scale {:g}; the next scale is {:g}",
        record.done, record.loss_scale, record.next_loss_scale);
  } else if (!is_taken || !std::isfinite(loss_of_word) || loss_of_word > std::log(1e20)) {
    result.diverged = fmt::format("training diverged: at step {} the loss is {} and the gradient's norm {}",
                                  record.done + (is_taken ? 0 : 1), loss_of_word, record.norm);
  }
  return result;
}

}  // namespace nmt
