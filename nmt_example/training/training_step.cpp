#include "nmt_example/training/training_step.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "ddl/drift_check.hpp"
#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/learning_rate_schedule.hpp"

namespace nmt {
namespace {

ddl::ShardedSamplerOptions sampler_options(const Options& options, const Dataset& dataset) {
  return {.seed = options.random_seed,
          .batch_size = static_cast<std::size_t>(options.batch_size),
          .shuffle = true,
          .buckets = dataset.buckets(static_cast<std::size_t>(options.num_buckets)),
          .lengths = dataset.lengths()};
}

ddl::LearningRateScaling scaled_schedule(ddl::Context& context, const Options& options) {
  Options schedule;
  context.on_all_ranks("learning rate", [&] { schedule = single_worker_schedule(options, context.size()); });
  return {context,
          [schedule](std::uint64_t step) { return learning_rate_at(schedule, step); },
          {.rule = ddl::parse_scaling_rule(options.lr_scaling),
           .ramp_steps = warmup_updates(options, context.size()),
           .unit = ddl::parse_schedule_unit(options.lr_schedule_unit)}};
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
      sampler_(context, dataset.size(), sampler_options(options, dataset)),
      gradients_(backend, gradients_of(model.parameters())),
      reducer_(context, gradients_.gradients(), {.gradients = ddl::GradientKind::sum}),
      scaling_(scaled_schedule(context, options)),
      ready_([this](std::size_t index) {
        gradients_.download(index);
        reducer_.ready(index);
      }),
      norm_(backend.allocate(sizeof(double))) {
  const auto sentences = static_cast<std::size_t>(options.batch_size);
  batch_.reserve(sentences, dataset.longest_source(), dataset.longest_target());
  share_.samples.reserve(sentences);
}

void TrainingStep::seek(std::uint64_t done, std::string_view sampler_state) {
  sampler_.restore(sampler_state);
  done_ = done;
}

void TrainingStep::check_drift() {
  HostMirror values(backend_, values_of(model_.parameters()));
  values.download();
  ddl::check_same_parameters(context_, values.parameters());
}

double TrainingStep::gradient_norm() {
  const Tensor norm{norm_.get(), 1, 1, 1, ddl::DataType::f64};
  backend_.sum_of_squares(model_.parameters().gradients(), norm);
  double squares[1];
  backend_.download(norm, std::span<double>(squares));
  return std::sqrt(squares[0]);
}

TrainingStep::Result TrainingStep::run(bool want_stop, const ddl::CheckpointVotes& votes) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  sampler_.next(share_);
  fill_batch(dataset_, share_.samples, batch_);
  // The step of the sampler, not of the optimiser: dropout belongs to the batch.
  const BatchLoss loss =
      model_.forward_backward(view_of(batch_), {options_.dropout, options_.random_seed, share_.step},
                              options_.label_smoothing, ready_);
  const double tokens = reducer_.wait(static_cast<double>(loss.target_tokens)).weight;
  gradients_.upload();
  double sums[7] = {loss.negative_log_likelihood,
                    static_cast<double>(batch_.words),
                    static_cast<double>(batch_.size()),
                    want_stop && context_.is_root() ? 1.0 : 0.0,
                    votes[0],
                    votes[1],
                    votes[2]};
  context_.communicator().all_reduce(std::span(sums));

  // tensorflow/nmt's loss is a sum over words divided by the sentences of the batch.
  const double mean_to_loss = options_.loss_per == "sentence" ? tokens / sums[2] : 1.0;
  const double norm = gradient_norm() * mean_to_loss;
  if (!std::isfinite(norm) || !std::isfinite(sums[0])) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("training diverged: at step {} the loss is {} and the gradient's norm {}. "
                                 "Lower --learning_rate, or raise --warmup_steps.",
                                 done_ + 1, sums[0] / tokens, norm))
        .as_agreed();
  }
  const double clip = norm > options_.max_gradient_norm ? options_.max_gradient_norm / norm : 1.0;
  const double learning_rate = scaling_.learning_rate(done_);
  ++done_;
  optimizer_.update(static_cast<std::int64_t>(done_), mean_to_loss * clip, learning_rate);
  return {{.step = static_cast<std::int64_t>(done_),
           .learning_rate = learning_rate,
           .loss_sum = sums[0],
           .target_tokens = tokens,
           .words = sums[1],
           .gradient_norm = norm,
           .seconds = std::chrono::duration<double>(Clock::now() - begin).count()},
          sums[3] > 0,
          {sums[4], sums[5], sums[6]}};
}

}  // namespace nmt
