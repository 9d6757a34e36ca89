#include "nmt_example/training/training_run.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "ddl/shared_buffer.hpp"
#include "nmt_example/training/batch_fit.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt {
namespace {

/// Largest resident size of this rank so far, in bytes.
double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Resident size of this rank now, in bytes; 0 if the system does not say.
double resident_memory() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// Memory for gradients that ranks reduce in place; null if the ranks have none in common.
std::shared_ptr<void> shared_gradients(ddl::Context& context, const Backend& backend,
                                       const std::shared_ptr<DeviceLink>& link, const ModelShape& shape,
                                       const ModelTypes& types) {
  const std::size_t bytes = static_cast<std::size_t>(parameter_layout(shape).extent) *
                            ddl::size_of(types.gradients.value_or(backend.type()));
  if (link) return {link, link->allocate(bytes)};
  return backend.host_accessible() ? ddl::allocate_bytes(context, bytes).release() : nullptr;
}

std::optional<SentenceNoise> noise_of(ddl::Context& context, const Options& options,
                                      const VocabularyPair& vocabularies) {
  std::optional<SentenceNoise> noise;
  if (options.word_dropout == 0 && options.subword_sampling == 0) return noise;
  context.on_all_ranks("prepare --subword_sampling", [&] {
    noise.emplace(vocabularies.source, vocabularies.target,
                  NoiseSettings{options.word_dropout, options.subword_sampling, options.random_seed});
  });
  return noise;
}

std::optional<MovingAverage> average_of(const Options& options, Backend& backend, ParameterSet& parameters) {
  if (options.ema_decay == 0) return {};
  return std::optional<MovingAverage>(std::in_place, backend, parameters);
}

/// No step of all ranks together has more target words than this.
double most_words(const Options& options, const Dataset& train, int ranks) {
  Options whole_batches = options;
  whole_batches.micro_batch_size = 0;
  std::int64_t most = 1;
  for (const BatchLimits& limits : batch_limits(whole_batches, train))
    most = std::max(most, limits.sentences * limits.target_steps);
  return static_cast<double>(most) * ranks;
}

ModelShape shape_of(const Options& options, const RunInputs& inputs) {
  return model_shape(options, inputs.vocabularies.source.size(), inputs.vocabularies.target.size());
}

std::int64_t given_or(std::int64_t given, std::int64_t otherwise) { return given > 0 ? given : otherwise; }

}  // namespace

TrainingRun::TrainingRun(ddl::Context& context, const Options& options, std::ostream& out, Backend& backend,
                         RunInputs inputs, ddl::Checkpoint* checkpoint, Profile* profile)
    : context_(context),
      options_(options),
      out_(out),
      inputs_(std::move(inputs)),
      most_words_(most_words(options, inputs_.train, context.size())),
      backend_(backend),
      memory_before_(resident_memory()),
      link_(connect_devices(context, backend)),
      model_(backend, shape_of(options, inputs_), batch_limits(options, inputs_.train).front(),
             shared_gradients(context, backend, link_, shape_of(options, inputs_),
                              model_types(options, backend)),
             model_types(options, backend)),
      optimizer_(backend, model_.parameters(), options),
      noise_(noise_of(context, options, inputs_.vocabularies)),
      average_(average_of(options, backend, model_.parameters())),
      step_(context, options, inputs_.train, backend, link_, model_, optimizer_, noise_ ? &*noise_ : nullptr,
            average()),
      scorer_(context, options, inputs_.texts, inputs_.vocabularies, backend, model_, checkpoint),
      checkpoint_(checkpoint),
      profile_(profile),
      eval_steps_(given_or(options.steps_per_eval, 10 * options.steps_per_stats)),
      score_steps_(given_or(options.steps_per_external_eval, 5 * eval_steps_)) {
  const std::vector<BatchLimits> limits = batch_limits(options, inputs_.train);
  for (std::size_t i = 1; i < limits.size(); ++i) model_.also_allow(limits[i]);
}

std::optional<double> TrainingRun::run(const SavedRun* saved) {
  start(saved);
  context_.root_only("describe the run", [&] { print_header(); });
  open_progress();
  seconds_before_ = state_.seconds;
  begin_ = Clock::now();
  const double time_limit = seconds_left();
  bool out_of_time = time_limit <= 0;
  bool is_first = true;
  is_saved_ = saved != nullptr;
  auto request = ddl::CheckpointRequest::none;
  std::string stopped = state_.early_stopping.reason(options_);
  while (!is_complete() && !out_of_time && stopped.empty() &&
         request != ddl::CheckpointRequest::save_and_end) {
    // Rank 0's clock, which is the one that is saved.
    const bool time_is_up = context_.is_root() && seconds_so_far() >= time_limit;
    queue_steps();
    const auto results =
        step_.collect(time_is_up, checkpoint_ != nullptr ? checkpoint_->votes() : ddl::CheckpointVotes{});
    out_of_time = results.back().stop;
    if (progress_ && std::exchange(is_first, false)) {
      progress_->note(fmt::format(
          "more memory a rank: {:.0f} MB of products (with copies of parameters), {:.0f} of buckets",
          megabytes(backend_.product_bytes()), megabytes(step_.gradients().packed_bytes())));
      if (options_.step_graph && !step_.gradients().can_be_recorded()) {
        progress_->note(
            "--step_graph: steps are not recorded, because gradients do not go between the ranks' devices by "
            "the exchange or NCCL alone (-dbg_level 1 shows by what they go)");
      }
    }
    if (!results.back().diverged.empty()) {
      if (inputs_.last_step) return std::numeric_limits<double>::infinity();
      roll_back(results.back().diverged);
      continue;
    }
    take(results);
    if (state_.step == step_.done()) continue;  // no step was taken
    state_.step = step_.done();
    // Before evaluation and saving, which are pointless once the ranks' parameters differ.
    if (options_.drift_check_steps > 0 &&
        static_cast<std::int64_t>(state_.step) % options_.drift_check_steps == 0)
      step_.check_drift();
    if (checkpoint_ != nullptr) request = checkpoint_->acknowledge(results.back().votes);
    stopped = evaluate_and_save(request, out_of_time);
  }
  end(request, stopped);
  if (request == ddl::CheckpointRequest::save_and_end) return std::nullopt;
  if (inputs_.last_step && dev_perplexity_ == 0) report_dev_loss();
  return dev_perplexity_;
}

/// Queues steps up to the next event, as far as there is room.
void TrainingRun::queue_steps() {
  if (profile_ != nullptr) profile_->begin_step();
  const auto queued_from = Clock::now();
  const std::int64_t most = steps_to_event({eval_steps_, score_steps_});
  for (std::int64_t queued = 0; queued < most && step_.room() > 0; ++queued) {
    step_.queue();
    // The first steps also bring memory and graphs into place; later ones may wait for room in the device's
    // queue.
    if (queued > 0 || !std::exchange(has_queued_, true)) continue;
    ++queued_steps_;
    queueing_seconds_ += std::chrono::duration<double>(Clock::now() - queued_from).count();
  }
}

/// Counts and logs steps that have been taken or left out.
void TrainingRun::take(const std::vector<TrainingStep::Result>& results) {
  for (const TrainingStep::Result& result : results) {
    if (!result.left_out.empty()) {
      if (progress_) progress_->note(result.left_out);
      continue;
    }
    state_.target_words += result.report.target_tokens;
    if (profile_ != nullptr) profile_->count_step(result.report.seconds);
    write_logs([&](Progress& progress) { progress.step(result.report); });
  }
}

/// Does what is due after this step. Returns why training stops early; empty if it does not.
std::string TrainingRun::evaluate_and_save(ddl::CheckpointRequest request, bool out_of_time) {
  const auto every = [&](std::int64_t steps) { return static_cast<std::int64_t>(state_.step) % steps == 0; };
  // The sender of SIGTERM does not wait long.
  const bool in_haste = request == ddl::CheckpointRequest::save_and_end;
  const bool last = !in_haste && (out_of_time || is_complete());
  const bool evaluates = !in_haste && every(eval_steps_);
  const bool scores =
      translates() && inputs_.dev && !in_haste && !inputs_.last_step && (every(score_steps_) || last);
  // Before saving, because a checkpoint records the best scores so far.
  const bool better = scores && score_dev();
  if (evaluates || last) report_dev_loss();
  note_scores(evaluates, scores && every(score_steps_));
  std::string stopped = state_.early_stopping.reason(options_);
  is_saved_ = evaluates || last || better || !stopped.empty() || request != ddl::CheckpointRequest::none;
  if (is_saved_) save();
  return stopped;
}

void TrainingRun::end(ddl::CheckpointRequest request, const std::string& stopped) {
  const bool is_told_to = request == ddl::CheckpointRequest::save_and_end;
  const double seconds = seconds_so_far();
  const std::string profiled = profile_ != nullptr ? profile_->report() : "";
  if (progress_) {
    if (!stopped.empty()) progress_->note(stopped);
    progress_->note(fmt::format("trained to step {} in {}", state_.step, duration_text(seconds)));
    if (!backend_.host_accessible() && queued_steps_ > 0) {
      progress_->note(fmt::format("the host took {:.2f} ms to queue a step",
                                  queueing_seconds_ / static_cast<double>(queued_steps_) * 1e3));
    }
    if (profile_ != nullptr) progress_->note(profiled);
  }
  if (!is_saved_) save();
  if (!is_told_to && !inputs_.last_step) {
    score_at_end();
    if (translates()) {
      double memory[2] = {peak_memory(), memory_before_};
      context_.communicator().all_reduce(std::span(memory), ddl::ReduceOp::max);
      if (progress_) {
        progress_->note(fmt::format("peak memory {:.0f} MB a rank, {:.0f} of them before the model",
                                    memory[0] / 1e6, memory[1] / 1e6));
      }
    }
  }
  scorer_.keep_best(state_);
  if (progress_ && is_told_to) {
    progress_->note(
        fmt::format("ended by SIGTERM after step {}, which is saved in {}: the same command goes on from it",
                    state_.step, options_.out_dir));
  }
}

/// Whether training is as long as --num_train_steps says; a time is compared elsewhere.
bool TrainingRun::is_complete() const {
  const Length& end = options_.num_train_steps;
  if (inputs_.last_step && static_cast<std::int64_t>(state_.step) >= *inputs_.last_step) return true;
  return end.unit() == LengthUnit::words ? state_.target_words >= end.amount()
                                         : static_cast<std::int64_t>(state_.step) >= end;
}

/// Until this run has to end.
double TrainingRun::seconds_left() const {
  const Length& end = options_.num_train_steps;
  double left = std::numeric_limits<double>::infinity();
  if (options_.max_train_seconds > 0) left = options_.max_train_seconds;
  if (end.unit() == LengthUnit::seconds) left = std::min(left, end.amount() - state_.seconds);
  return left;
}

double TrainingRun::seconds_so_far() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

/// A number of steps that certainly does not go past the end of training.
std::int64_t TrainingRun::steps_to_end() const {
  const Length& end = options_.num_train_steps;
  const auto done = static_cast<std::int64_t>(state_.step);
  const std::int64_t steps =
      end.unit() != LengthUnit::words
          ? end - done
          : static_cast<std::int64_t>((end.amount() - state_.target_words) / most_words_) + 1;
  return inputs_.last_step ? std::min(steps, *inputs_.last_step - done) : steps;
}

/// How many steps there are until something else than a step is due, if it is due every so many steps.
std::int64_t TrainingRun::steps_to_event(std::initializer_list<std::int64_t> periods) const {
  const auto done = static_cast<std::int64_t>(state_.step);
  std::int64_t steps = steps_to_end();
  const auto until = [&](std::int64_t period) { steps = std::min(steps, period - done % period); };
  for (const std::int64_t period : periods) until(period);
  until(options_.steps_per_stats);
  if (options_.drift_check_steps > 0) until(options_.drift_check_steps);
  return steps;
}

}  // namespace nmt
