#include "nmt_example/training/training_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "ddl/drift_check.hpp"
#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/learning_rate_schedule.hpp"

namespace nmt {
namespace {

/// Batches without a break that are left out because their gradients are not finite, before that is
/// divergence.
constexpr int most_left_out = 50;

ddl::LearningRateScaling scaled_schedule(ddl::Context& context, const Options& options) {
  Options schedule;
  context.on_all_ranks("learning rate", [&] { schedule = single_worker_schedule(options, context.size()); });
  return {context,
          [schedule](std::uint64_t step) { return learning_rate_at(schedule, step); },
          {.rule = options.lr_scaling,
           .ramp_steps = warmup_updates(options, context.size()),
           .unit = options.lr_schedule_unit}};
}

/// The index of a side's embedding; that of no parameter if the side has none.
std::size_t embedding_of(const Model& model, const ParameterLayout& layout, Side side) {
  const std::string name = embedding_name(model.shape(), side);
  return layout.contains(name) ? layout.index_of(name) : layout.parameters.size();
}

}  // namespace

TrainingStep::TrainingStep(ddl::Context& context, const Options& options, const Dataset& dataset,
                           Backend& backend, Model& model, Optimizer& optimizer)
    : context_(context),
      options_(options),
      dataset_(dataset),
      backend_(backend),
      model_(model),
      optimizer_(optimizer),
      phases_(context, options, dataset),
      gradients_(context, options, backend, model),
      scaling_(scaled_schedule(context, options)),
      ready_([this](std::size_t index) { report_ready(index); }),
      source_embedding_(embedding_of(model, model.parameters().layout(), Side::encoder)),
      target_embedding_(embedding_of(model, model.parameters().layout(), Side::decoder)),
      loss_scale_(options) {
  model.on_part([this](std::string_view part) {
    part_.reset();
    part_.emplace(context_.timeline().scope(part));
    gradients_.part(part);
  });
  if (options.sharded_update) {
    optimizer.take(gradients_.shards(),
                   [&context](std::span<double> sums) { context.communicator().all_reduce(sums); });
  }
  const auto sentences = static_cast<std::size_t>(std::max(options.batch_size, options.phase1_batch_size));
  batch_.reserve(sentences, dataset.longest_source(), dataset.longest_target());
  share_.samples.reserve(sentences);
}

void TrainingStep::seek(std::uint64_t done, std::string_view sampler_state) {
  phases_.restore(done, sampler_state);
  done_ = done;
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

/// Computes the gradients of this rank's share of the batch, in micro-batches. Returns the share's loss.
BatchLoss TrainingStep::forward_backward() {
  std::span<const std::size_t> left = share_.samples;
  const std::size_t most =
      options_.micro_batch_size > 0 ? static_cast<std::size_t>(options_.micro_batch_size) : left.size();
  BatchLoss loss;
  words_ = 0;
  GradientUse use = gradients_are_zero_ ? GradientUse::add : GradientUse::replace;
  gradients_are_zero_ = false;
  for (; left.size() > most; left = left.subspan(most), use = GradientUse::add) {
    const auto part = [&] { micro_batch(left.first(most), use, loss); };
    gradients_.accumulate(std::ref(part));
  }
  micro_batch(left, use, loss);
  return loss;
}

void TrainingStep::micro_batch(std::span<const std::size_t> samples, GradientUse use, BatchLoss& sum) {
  {
    const auto scope = context_.timeline().scope("batch");
    fill_batch(dataset_, samples, batch_);
  }
  gradients_.begin(static_cast<double>(batch_.target_tokens));
  // Dropout belongs to the batch, so it uses the sampler's step and not the optimiser's.
  const BatchLoss loss =
      model_.forward_backward(view_of(batch_), {options_.dropout, options_.random_seed, share_.step},
                              options_.label_smoothing, ready_, use);
  part_.reset();
  gradients_.part({});
  sum.negative_log_likelihood += loss.negative_log_likelihood;
  words_ += options_.language_model ? batch_.target_tokens : batch_.words;
}

void TrainingStep::update(double gradient_scale, double learning_rate) {
  const auto scope = context_.timeline().scope("optimizer");
  optimizer_.update(static_cast<std::int64_t>(done_), gradient_scale, learning_rate);
  gradients_are_zero_ = optimizer_.is_whole();
  if (options_.sharded_update) gradients_.gather();
}

/// The largest absolute sum of gradients over all ranks, with the loss scale.
double TrainingStep::largest_gradient() {
  const auto memory = backend_.allocate(sizeof(double));
  const Tensor result(memory.get(), 1, 1, 1, ddl::DataType::f64);
  double largest[1] = {0};
  const auto look_at = [&](const Tensor& gradients) {
    double of_these[1];
    backend_.largest_magnitude(gradients, result);
    backend_.download(result, std::span(of_these));
    largest[0] = std::max(largest[0], of_these[0]);
  };
  const ParameterSet& parameters = model_.parameters();
  if (!options_.sharded_update) {
    look_at(parameters.gradients());
    return largest[0];
  }
  for (const ddl::GradientPiece& piece : gradients_.shards()) {
    const Tensor gradient = parameters.gradient(piece.gradient);
    look_at(gradient.reshaped(1, gradient.size())
                .col_range(static_cast<std::int64_t>(piece.first), static_cast<std::int64_t>(piece.count)));
  }
  context_.communicator().all_reduce(std::span(largest), ddl::ReduceOp::max);
  return largest[0];
}

TrainingStep::Result TrainingStep::run(bool want_stop, const ddl::CheckpointVotes& votes) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto scope = context_.timeline().scope("step");
  const int phase = phases_.number(done_);
  phases_.next(done_, share_);
  const double loss_scale = loss_scale_.value();
  model_.scale_loss(loss_scale);
  const BatchLoss loss = forward_backward();
  const ddl::ReducedStep reduced = gradients_.finish();
  const double tokens = reduced.weight;
  double sums[7] = {loss.negative_log_likelihood,
                    static_cast<double>(words_),
                    static_cast<double>(share_.samples.size()),
                    want_stop ? 1.0 : 0.0,
                    votes[0],
                    votes[1],
                    votes[2]};
  context_.communicator().all_reduce(std::span(sums));

  // tensorflow/nmt's loss is the sum over words, divided by the sentences of the batch.
  const double mean_to_loss = options_.loss_per == LossPer::sentence ? tokens / sums[2] : 1.0;
  const double gradient_scale = reduced.scale * mean_to_loss / loss_scale;
  const double norm = reduced.norm * mean_to_loss / loss_scale;
  const double loss_of_word = sums[0] / tokens;
  Result result{.report = {}, .stop = sums[3] > 0, .votes = {sums[4], sums[5], sums[6]}};
  const bool is_finite = reduced.finite && std::isfinite(loss_of_word);
  if (!is_finite && loss_scale_.skips() && ++left_out_ <= most_left_out) {
    loss_scale_.end_step(true);
    result.left_out = fmt::format(
        "a batch after step {} is left out: its gradients are not finite with loss "
        "scale {:g}; the next scale is {:g}",
        done_, loss_scale, loss_scale_.value());
    return result;
  }
  if (!is_finite || loss_of_word > std::log(1e20)) {
    result.diverged = fmt::format("training diverged: at step {} the loss is {} and the gradient's norm {}",
                                  done_ + 1, loss_of_word, norm);
    return result;
  }
  left_out_ = 0;
  loss_scale_.end_step(false, loss_scale_.measures() ? largest_gradient() * gradient_scale : 0);
  const double clip = norm > options_.max_gradient_norm ? options_.max_gradient_norm / norm : 1.0;
  const double learning_rate = learning_rate_factor_ * scaling_.learning_rate(done_);
  ++done_;
  update(gradient_scale * clip, learning_rate);
  result.report = {.step = static_cast<std::int64_t>(done_),
                   .learning_rate = learning_rate,
                   .loss_sum = sums[0],
                   .target_tokens = tokens,
                   .words = sums[1],
                   .gradient_norm = norm,
                   .seconds = std::chrono::duration<double>(Clock::now() - begin).count(),
                   .phase = phase};
  return result;
}

}  // namespace nmt
