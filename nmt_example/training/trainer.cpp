#include "nmt_example/training/trainer.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <utility>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/log.hpp"
#include "ddl/sharded_sampler.hpp"
#include "ddl/shared_buffer.hpp"
#include "nmt_example/backend/profile.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/training/batch_fit.hpp"
#include "nmt_example/training/corpus.hpp"
#include "nmt_example/training/divergence.hpp"
#include "nmt_example/training/epochs.hpp"
#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/host_mirror.hpp"
#include "nmt_example/training/lstm_choice.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/progress.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/scorer.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/training_step.hpp"

namespace nmt {
namespace {

constexpr const char* best_by_perplexity = "best_dev_ppl";

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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

template <typename T>
T* pointer_to(std::optional<T>& value) {
  return value ? &*value : nullptr;
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

/// One training run; see `train`.
class Trainer {
 public:
  Trainer(ddl::Context& context, const Options& options, std::ostream& out, Backend& backend, Texts texts,
          VocabularyPair vocabularies, Dataset train, std::optional<Dataset> dev, GivenEmbeddings given,
          const Epochs& epochs, std::optional<std::int64_t> last_step, ddl::Checkpoint* checkpoint,
          Profile* profile)
      : context_(context),
        options_(options),
        out_(out),
        texts_(std::move(texts)),
        vocabularies_(std::move(vocabularies)),
        train_(std::move(train)),
        most_words_(most_words(options, train_, context.size())),
        dev_(std::move(dev)),
        given_(std::move(given)),
        epochs_(epochs),
        backend_(backend),
        memory_before_(resident_memory()),
        link_(connect_devices(context, backend)),
        model_(
            backend, model_shape(options, vocabularies_.source.size(), vocabularies_.target.size()),
            batch_limits(options, train_).front(),
            shared_gradients(context, backend, link_,
                             model_shape(options, vocabularies_.source.size(), vocabularies_.target.size()),
                             model_types(options, backend)),
            model_types(options, backend)),
        optimizer_(backend, model_.parameters(), options),
        noise_(noise_of(context, options, vocabularies_)),
        average_(average_of(options, backend, model_.parameters())),
        step_(context, options, train_, backend, link_, model_, optimizer_, pointer_to(noise_),
              pointer_to(average_)),
        scorer_(context, options, texts_, vocabularies_, backend, model_, checkpoint),
        last_step_(last_step),
        checkpoint_(checkpoint),
        profile_(profile) {
    const std::vector<BatchLimits> limits = batch_limits(options, train_);
    for (std::size_t i = 1; i < limits.size(); ++i) model_.also_allow(limits[i]);
  }

  /// Returns what `train_part` does.
  std::optional<double> run(const SavedRun* saved) {
    start(saved);
    context_.root_only("describe the run", [&] { print_header(); });
    std::optional<Progress> progress;
    open_progress(progress);
    const auto every = [&](std::int64_t steps) {
      return static_cast<std::int64_t>(state_.step) % steps == 0;
    };
    const auto given_or = [](std::int64_t given, std::int64_t otherwise) {
      return given > 0 ? given : otherwise;
    };
    const std::int64_t eval_steps = given_or(options_.steps_per_eval, 10 * options_.steps_per_stats);
    const std::int64_t score_steps = given_or(options_.steps_per_external_eval, 5 * eval_steps);
    seconds_before_ = state_.seconds;
    begin_ = Clock::now();
    const double time_limit = seconds_left();
    bool saved_now = saved != nullptr;
    bool out_of_time = time_limit <= 0;
    bool is_first = true, is_first_queue = true;
    auto request = ddl::CheckpointRequest::none;
    std::string stopped = state_.early_stopping.reason(options_);
    while (!is_complete() && !out_of_time && stopped.empty() &&
           request != ddl::CheckpointRequest::save_and_end) {
      // Rank 0's clock, which is the one that is saved.
      const bool time_is_up = context_.is_root() && seconds_since(begin_) >= time_limit;
      if (profile_ != nullptr) profile_->begin_step();
      const auto queued_from = Clock::now();
      std::int64_t queued = 0;
      for (const std::int64_t most = steps_to_event({eval_steps, score_steps});
           queued < most && step_.room() > 0; ++queued) {
        step_.queue();
        // The first steps also bring memory and graphs into place; later ones may wait for room in the
        // device's queue.
        if (queued > 0 || std::exchange(is_first_queue, false)) continue;
        ++queued_steps_;
        queueing_seconds_ += seconds_since(queued_from);
      }
      const auto results =
          step_.collect(time_is_up, checkpoint_ != nullptr ? checkpoint_->votes() : ddl::CheckpointVotes{});
      out_of_time = results.back().stop;
      if (progress && std::exchange(is_first, false)) note_memory(*progress);
      if (!results.back().diverged.empty()) {
        if (last_step_) return std::numeric_limits<double>::infinity();
        roll_back(results.back().diverged, progress);
        saved_now = true;
        continue;
      }
      for (const TrainingStep::Result& result : results) {
        if (!result.left_out.empty()) {
          if (progress) progress->note(result.left_out);
          continue;
        }
        state_.target_words += result.report.target_tokens;
        if (profile_ != nullptr) profile_->count_step(result.report.seconds);
        write_progress(progress, result.report);
      }
      if (state_.step == step_.done()) continue;  // no step was taken
      state_.step = step_.done();
      // Before evaluation and saving, which are pointless once the ranks' parameters differ.
      if (options_.drift_check_steps > 0 && every(options_.drift_check_steps)) step_.check_drift();
      if (checkpoint_ != nullptr) request = checkpoint_->acknowledge(results.back().votes);
      // The sender of SIGTERM does not wait long.
      const bool in_haste = request == ddl::CheckpointRequest::save_and_end;
      const bool last = !in_haste && (out_of_time || is_complete());
      const bool evaluates = !in_haste && every(eval_steps);
      const bool scores = translates() && dev_ && !in_haste && !last_step_ && (every(score_steps) || last);
      // Before saving, because a checkpoint records the best scores so far.
      const bool better = scores && score_dev(progress);
      if (evaluates || last) report_dev_loss(progress);
      note_scores(evaluates, scores && every(score_steps));
      stopped = state_.early_stopping.reason(options_);
      saved_now = evaluates || last || better || !stopped.empty() || request != ddl::CheckpointRequest::none;
      if (saved_now) save(progress);
    }
    if (progress && !stopped.empty()) progress->note(stopped);
    const double seconds = seconds_since(begin_);
    if (progress)
      progress->note(fmt::format("trained to step {} in {}", state_.step, duration_text(seconds)));
    if (progress && !backend_.host_accessible() && queued_steps_ > 0) {
      progress->note(fmt::format("the host took {:.2f} ms to queue a step",
                                 queueing_seconds_ / static_cast<double>(queued_steps_) * 1e3));
    }
    if (profile_ != nullptr) {
      const std::string report = profile_->report();
      if (progress) progress->note(report);
    }
    if (!saved_now) save(progress);
    if (request != ddl::CheckpointRequest::save_and_end && !last_step_) finish(progress);
    scorer_.keep_best(state_);
    if (progress && request == ddl::CheckpointRequest::save_and_end) {
      progress->note(fmt::format(
          "ended by SIGTERM after step {}, which is saved in {}: the same command goes on from it",
          state_.step, options_.out_dir));
    }
    if (request == ddl::CheckpointRequest::save_and_end) return std::nullopt;
    if (last_step_ && dev_perplexity_ == 0) report_dev_loss(progress);
    return dev_perplexity_;
  }

 private:
  /// Whether training is as long as --num_train_steps says; a time is compared elsewhere.
  [[nodiscard]] bool is_complete() const {
    const Length& end = options_.num_train_steps;
    if (last_step_ && static_cast<std::int64_t>(state_.step) >= *last_step_) return true;
    return end.unit() == LengthUnit::words ? state_.target_words >= end.amount()
                                           : static_cast<std::int64_t>(state_.step) >= end;
  }

  /// Until this run has to end.
  [[nodiscard]] double seconds_left() const {
    const Length& end = options_.num_train_steps;
    double left = std::numeric_limits<double>::infinity();
    if (options_.max_train_seconds > 0) left = options_.max_train_seconds;
    if (end.unit() == LengthUnit::seconds) left = std::min(left, end.amount() - state_.seconds);
    return left;
  }

  /// A number of steps that certainly does not go past the end of training.
  [[nodiscard]] std::int64_t steps_to_end() const {
    const Length& end = options_.num_train_steps;
    const auto done = static_cast<std::int64_t>(state_.step);
    const std::int64_t steps =
        end.unit() != LengthUnit::words
            ? end - done
            : static_cast<std::int64_t>((end.amount() - state_.target_words) / most_words_) + 1;
    return last_step_ ? std::min(steps, *last_step_ - done) : steps;
  }

  /// How many steps there are until something else than a step is due, if it is due every so many steps.
  [[nodiscard]] std::int64_t steps_to_event(std::initializer_list<std::int64_t> periods) const {
    const auto done = static_cast<std::int64_t>(state_.step);
    std::int64_t steps = steps_to_end();
    const auto until = [&](std::int64_t period) { steps = std::min(steps, period - done % period); };
    for (const std::int64_t period : periods) until(period);
    until(options_.steps_per_stats);
    if (options_.drift_check_steps > 0) until(options_.drift_check_steps);
    return steps;
  }

  void start(const SavedRun* saved) {
    if (saved == nullptr) {
      model_.parameters().initialize(backend_, options_.init_op, options_.init_weight, options_.random_seed);
      upload_given(Side::encoder, given_.source);
      upload_given(Side::decoder, given_.target);
      HostMirror values(backend_, values_of(model_.parameters()));
      values.download();
      ddl::broadcast_parameters(context_, values.parameters());
      values.upload();
      if (average_) average_->restart();
    } else {
      restore(*saved);
      if (options_from_json(state_.options_json).learning_rate != options_.learning_rate) {
        state_.rollbacks = 0;  // the new rate is meant as it is
      }
    }
    step_.scale_learning_rate(rate_after(state_.rollbacks));
    state_.options_json = to_json(options_);
    state_.epochs = epochs_;
    if (options_.rnn == LstmMethod::automatic) {
      const LstmChoice choice = choose_lstm(context_, options_, backend_, model_, train_, state_.rnn);
      if (!choice.reason.empty()) state_.rnn = name_of(choice.method);
      how_lstm_ = choice.reason;
    }
    if (!options_.out_dir.empty()) {
      context_.root_only("prepare --out_dir", [&] { prepare_out_dir(); });
    }
    scorer_.keep_best(state_);
  }

  void upload_given(Side side, std::optional<EmbeddingVectors>& vectors) {
    if (!vectors) return;
    ParameterSet& parameters = model_.parameters();
    const Tensor table = parameters.value(parameters.layout().index_of(embedding_name(model_.shape(), side)));
    backend_.upload(table.row_range(Embedding::trained_rows, table.rows - Embedding::trained_rows),
                    vectors->values);
    vectors.reset();
  }

  void restore(const SavedRun& saved) {
    step_.restore(saved);
    state_ = saved.state();
    go_on_from(saved.path());
  }

  void open_progress(std::optional<Progress>& progress) {
    context_.root_only("open the step log", [&] {
      progress.emplace(ProgressSettings{.start_step = static_cast<std::int64_t>(state_.step),
                                        .start_words = state_.target_words,
                                        .start_seconds = state_.seconds,
                                        .end = options_.num_train_steps,
                                        .steps_per_stats = options_.steps_per_stats,
                                        .logs = log_files(),
                                        .scores = names_of_scores()},
                       out_, &out_ == &std::cout && standard_output_is_terminal());
    });
  }

  /// Goes back to a good checkpoint, at half the learning rate. Throws, agreed, if it must not or cannot.
  void roll_back(const std::string& diverged, std::optional<Progress>& progress) {
    check_may_roll_back(options_, state_, diverged);
    scorer_.keep_best(state_);
    const SavedRun saved = run_before_divergence(context_, options_, *checkpoint_, state_, diverged);
    RunState next = saved.state();
    next.rollbacks = state_.rollbacks + 1;
    next.best = state_.best;
    next.rnn = state_.rnn;
    next.options_json = state_.options_json;
    next.epochs = state_.epochs;
    restore(saved);
    state_ = std::move(next);
    step_.scale_learning_rate(rate_after(state_.rollbacks));
    if (progress) {
      progress->note(fmt::format("{}; going back to step {}, with {:g} of the learning rate", diverged,
                                 state_.step, rate_after(state_.rollbacks)));
    }
    open_progress(progress);
    save(progress);
  }

  void go_on_from(const std::string& checkpoint) {
    context_.on_all_ranks("go on from the checkpoint", [&] {
      check_resumable(state_, checkpoint);
      try {
        step_.seek(state_.step, state_.sampler);
        LossScale scale = step_.loss_scale();
        nmt::restore(scale, state_.loss_scale);
        step_.set_loss_scale(scale);
      } catch (const ddl::Error& error) {
        if (error.code() != ddl::ErrorCode::mismatch) throw;
        throw ddl::Error(
            error.code(),
            fmt::format(
                "checkpoint {} is of a run over other sentences, or in another order: {}. Give the "
                "text, --random_seed, --num_buckets, --src_max_len, --tgt_max_len, --phase1_steps and "
                "--phase1_max_len of that run, or another --out_dir to start anew.",
                checkpoint, error.what()));
      }
    });
  }

  void prepare_out_dir() {
    const std::filesystem::path directory = options_.out_dir;
    try {
      create_out_dir(options_);
      ddl::write_file_atomically(directory / "options.json", to_json(options_) + "\n");
    } catch (const ddl::Error& error) {
      throw ddl::Error(error.code(),
                       fmt::format("--out_dir={} cannot be written to: {}", options_.out_dir, error.what()));
    }
  }

  void print_header() {
    out_ << describe(model_.parameters().layout(), model_.parameters().gradient_type());
    fmt::print(out_, "{} rank{} on {} host{}, {} thread{} each, {}{}\n", context_.size(),
               context_.size() == 1 ? "" : "s", context_.hosts(), context_.hosts() == 1 ? "" : "s",
               threads_per_rank(context_, options_), threads_per_rank(context_, options_) == 1 ? "" : "s",
               backend_.name(),
               options_.dtype == Dtype::mixed
                   ? fmt::format(" in mixed precision ({})", ddl::to_string(backend_.narrow_type()))
               : options_.dtype == Dtype::tf32 ? " with products of tf32"
                                               : "");
    const TrainingMemory memory = training_memory(options_, train_, backend_, model_, context_.size());
    fmt::print(
        out_,
        "memory a rank: {:.0f} MB of parameters, {:.0f} of gradients, {:.0f} of the optimiser, {:.0f} of "
        "activations\n",
        megabytes(memory.parameters), megabytes(memory.gradients), megabytes(memory.optimizer),
        megabytes(memory.activations));
    if (!how_lstm_.empty()) fmt::print(out_, "{}\n", how_lstm_);
    const std::int64_t ranks = context_.size();
    const DatasetFacts& facts = train_.facts();
    fmt::print(out_, "{} training pairs ({} dropped, {} cut), {} steps an epoch of {}\n", train_.size(),
               facts.empty_source + facts.empty_target, facts.cut, step_.phases().steps_per_epoch(),
               options_.batch_words > 0 ? fmt::format("at most {} words each", options_.batch_words * ranks)
                                        : fmt::format("{} sentences each", options_.batch_size * ranks));
    out_ << describe(facts);
    out_ << step_.phases().description();
    for (const Flag& flag : all_flags()) {
      const auto* member = std::get_if<Length Options::*>(&flag.member);
      if (member == nullptr || (options_.**member).unit() != LengthUnit::epochs) continue;
      fmt::print(out_, "--{}={}: {} steps\n", flag.name, (options_.**member).text(),
                 std::int64_t{options_.**member});
    }
    if (state_.step > 0) fmt::print(out_, "going on from step {}\n", state_.step);
    out_.flush();
  }

  /// What the first step has shown.
  void note_memory(Progress& progress) {
    progress.note(fmt::format(
        "more memory a rank: {:.0f} MB of products (with copies of parameters), {:.0f} of buckets",
        megabytes(backend_.product_bytes()), megabytes(step_.gradients().packed_bytes())));
  }

  /// Calls `write` on rank 0. A full disk must end every rank, not only the one that writes the log.
  template <typename Write>
  void write_logs(std::optional<Progress>& progress, const Write& write) {
    if (!log_files().any()) {
      if (progress) write(*progress);
    } else {
      context_.root_only("write the step log", [&] { write(*progress); });
    }
  }

  void write_progress(std::optional<Progress>& progress, const StepReport& report) {
    write_logs(progress, [&](Progress& p) { p.step(report); });
  }

  /// Logs scores, whose names get the prefix.
  void log_scores(std::optional<Progress>& progress, const std::string& prefix,
                  std::span<const std::pair<std::string, double>> scores) {
    std::vector<LogValue> values;
    for (const auto& [name, score] : scores) values.push_back({prefix + name, score});
    write_logs(progress, [&](Progress& p) { p.log(static_cast<std::int64_t>(state_.step), values); });
  }

  [[nodiscard]] LogFiles log_files() const {
    const bool by_default = options_.log_jsonl.empty() && !options_.out_dir.empty();
    return {.jsonl = by_default ? (std::filesystem::path(options_.out_dir) / "log.jsonl").string()
                                : options_.log_jsonl,
            .csv = options_.log_csv,
            .tensorboard = options_.log_dir};
  }

  /// The names that `log_scores` uses.
  [[nodiscard]] std::vector<std::string> names_of_scores() const {
    std::vector<std::string> names;
    for (const std::string prefix : {"dev_", "test_"}) {
      names.push_back(prefix + "ppl");
      if (!translates()) continue;
      for (const Metric* metric : options_.metrics) names.push_back(prefix + std::string(metric->name));
    }
    return names;
  }

  void report_dev_loss(std::optional<Progress>& progress) {
    if (!dev_) return;
    const auto averaged = averages_in_model();
    dev_perplexity_ = std::exp(mean_loss(context_, model_, *dev_));
    if (progress) progress->note(fmt::format("  eval step {}: dev ppl {:.2f}", state_.step, dev_perplexity_));
    log_scores(progress, "dev_", std::vector{std::pair<std::string, double>("ppl", dev_perplexity_)});
    // JSON has no infinity.
    if (options_.early_stopping != dev_perplexity || !std::isfinite(dev_perplexity_)) return;
    const auto best = state_.best.find(best_by_perplexity);
    if (best == state_.best.end() || dev_perplexity_ < best->second.score)
      state_.best[best_by_perplexity] = {dev_perplexity_, state_.step};
  }

  /// For early stopping, of the scores that are due at this step.
  void note_scores(bool perplexity, bool metrics) {
    const std::string& by = options_.early_stopping;
    if (perplexity && dev_ && by == dev_perplexity) {
      state_.early_stopping.note(by, dev_perplexity_, state_.step);
    }
    if (!metrics) return;
    for (const auto& [name, score] : scorer_.dev_scores()) {
      if (name == by) state_.early_stopping.note(by, score, state_.step);
    }
  }

  /// With --ema_decay, while the result lives, what is evaluated are the averages.
  [[nodiscard]] std::unique_ptr<MovingAverage::InModel> averages_in_model() const {
    return average_ ? std::make_unique<MovingAverage::InModel>(*average_) : nullptr;
  }

  bool score_dev(std::optional<Progress>& progress) {
    const auto averaged = averages_in_model();
    const bool better = scorer_.score_dev(state_, progress);
    log_scores(progress, "dev_", scorer_.dev_scores());
    return better;
  }

  /// A language model is scored by its perplexity alone.
  [[nodiscard]] bool translates() const noexcept { return !options_.language_model; }

  void report_test_loss(std::optional<Progress>& progress) {
    if (texts_.test.size() == 0) return;
    std::optional<Dataset> test;
    context_.on_all_ranks("encode the test text", [&] {
      const ParallelText text{texts_.test.source, texts_.test.source};
      test.emplace(encode(text, vocabularies_.source, vocabularies_.target, 0, 0));
    });
    const auto averaged = averages_in_model();
    const double perplexity = std::exp(mean_loss(context_, model_, *test));
    if (progress) progress->note(fmt::format("test ppl {:.2f}", perplexity));
    log_scores(progress, "test_", std::vector{std::pair<std::string, double>("ppl", perplexity)});
  }

  void save(std::optional<Progress>& progress) {
    if (checkpoint_ == nullptr) return;
    scorer_.keep_best(state_);
    state_.seconds = seconds_before_ + seconds_since(begin_);
    state_.sampler = step_.sampler_state();
    state_.loss_scale = state_of(step_.loss_scale());
    state_.reducer = step_.gradients().state();
    const auto path = save_run(*checkpoint_, state_, vocabularies_, backend_, model_.parameters(), optimizer_,
                               pointer_to(average_), step_.residuals());
    if (!progress) return;
    progress->note(fmt::format("  {} {}{}", options_.background_checkpoints ? "saving" : "saved",
                               path.string(), scorer_.praise(state_)));
  }

  void finish(std::optional<Progress>& progress) {
    if (!translates()) return report_test_loss(progress);
    if (dev_ && scorer_.scored_step() != state_.step && score_dev(progress)) save(progress);
    if (texts_.test.size() > 0) {
      const auto averaged = averages_in_model();
      log_scores(progress, "test_", scorer_.score_test(progress));
    }
    double memory[2] = {peak_memory(), memory_before_};
    context_.communicator().all_reduce(std::span(memory), ddl::ReduceOp::max);
    if (!progress) return;
    progress->note(fmt::format("peak memory {:.0f} MB a rank, {:.0f} of them before the model",
                               memory[0] / 1e6, memory[1] / 1e6));
  }

  ddl::Context& context_;
  const Options& options_;
  std::ostream& out_;
  Texts texts_;
  VocabularyPair vocabularies_;
  Dataset train_;
  double most_words_;
  std::optional<Dataset> dev_;
  GivenEmbeddings given_;
  Epochs epochs_;
  Backend& backend_;
  double memory_before_;              // resident, before the model
  std::shared_ptr<DeviceLink> link_;  // between devices
  Model model_;
  Optimizer optimizer_;
  std::optional<SentenceNoise> noise_;
  std::optional<MovingAverage> average_;  // with --ema_decay
  TrainingStep step_;
  Scorer scorer_;
  RunState state_;
  double dev_perplexity_ = 0;  // the newest
  double seconds_before_ = 0;  // of earlier runs
  double queueing_seconds_ = 0;
  std::int64_t queued_steps_ = 0;
  Clock::time_point begin_;
  std::optional<std::int64_t> last_step_;  // of `train_part`
  std::string how_lstm_;                   // are computed, for the header
  ddl::Checkpoint* checkpoint_;            // null without --out_dir
  Profile* profile_;                       // null without --profile
};

ddl::CheckpointOptions checkpoint_options(const Options& options) {
  return {.keep = static_cast<std::size_t>(options.num_keep_ckpts),
          .sharded = options.sharded_checkpoints,
          .background = options.background_checkpoints,
          .handle_signals = true};
}

/// `last_step`, `given_vocabularies`: see `train_part`.
std::optional<double> train(ddl::Context& context, const ParsedOptions& parsed,
                            std::optional<std::int64_t> last_step, const VocabularyPair* given_vocabularies,
                            std::ostream& out) {
  std::unique_ptr<Backend> backend = make_backend(context, parsed.options);
  Profile* profile = nullptr;
  if (parsed.options.profile) {
    auto profiled = std::make_unique<Profile>(std::move(backend));
    profile = profiled.get();
    backend = std::move(profiled);
  }
  std::optional<SavedRun> saved;
  if (!parsed.options.out_dir.empty()) {
    ddl::Checkpoint checkpoints(context, parsed.options.out_dir);
    saved = newest_run(context, checkpoints);
  }
  Options options = parsed.options;
  context.on_all_ranks("check the options", [&] {
    if (saved) options = options_of_run(*saved, parsed);
    validate(options);
  });
  const std::string without_effect = flags_without_effect(options, parsed);
  if (context.is_root() && !without_effect.empty()) context.log().notice(without_effect);
  if (saved) {
    context.root_only("print what differs from the checkpoint", [&] {
      for (const std::string& change :
           changes_from_saved(options_from_json(saved->state().options_json), options, parsed)) {
        fmt::print(out, "{}\n", change);
      }
    });
  }
  std::optional<ddl::Checkpoint> checkpoint;
  if (!options.out_dir.empty()) checkpoint.emplace(context, options.out_dir, checkpoint_options(options));
  Texts texts = load_texts(context, options);
  VocabularyPair vocabularies = saved                ? saved->vocabularies()
                                : given_vocabularies ? *given_vocabularies
                                                     : make_vocabularies(context, options);
  GivenEmbeddings given;
  if (!saved) {
    context.on_all_ranks("read the given vectors", [&] {
      given = given_embeddings(options, vocabularies);
      if (given.source) options.src_embed_size = static_cast<int>(given.source->size);
      if (given.target) options.tgt_embed_size = static_cast<int>(given.target->size);
      if (given.source && options.share_vocab) options.tgt_embed_size = options.src_embed_size;
      validate(options);
    });
  }
  Dataset train_set = load_training_data(context, options, vocabularies);
  std::optional<Dataset> dev_set;
  context.on_all_ranks("encode the dev text", [&] {
    check_sampled_words(options, vocabularies);
    if (texts.dev.size() > 0) {
      dev_set.emplace(encode(texts.dev, vocabularies.source, vocabularies.target,
                             static_cast<std::size_t>(options.src_max_len_infer),
                             static_cast<std::size_t>(options.tgt_max_len_infer)));
    }
    // BLEU compares with joined translations.
    for (ParallelText* text : {&texts.dev, &texts.test}) {
      for (std::string& line : text->target) line = vocabularies.target.join(line);
    }
    check_enough_for_ranks(context, options, train_set);
  });
  check_same_data(context, train_set);
  const ModelShape shape = model_shape(options, vocabularies.source.size(), vocabularies.target.size());
  if (options.mini_batch_fit && !(saved && options_from_json(saved->state().options_json).mini_batch_fit)) {
    const std::string found = fit_batch(context, options, train_set, *backend, shape);
    context.root_only("say which batch was found", [&] { fmt::print(out, "{}\n", found); });
  } else {
    check_batch(context, options, train_set, *backend, shape);
  }
  Epochs epochs = saved ? saved->state().epochs : Epochs();
  context.on_all_ranks("count the steps of an epoch", [&] {
    epochs.go_on(saved ? saved->state().step : 0, steps_per_epoch(context, options, train_set));
    set_steps_of_epochs(options, epochs, context.size());
    validate(options);
  });
  Trainer trainer(context, options, out, *backend, std::move(texts), std::move(vocabularies),
                  std::move(train_set), std::move(dev_set), std::move(given), epochs, last_step,
                  checkpoint ? &*checkpoint : nullptr, profile);
  return trainer.run(saved ? &*saved : nullptr);
}

}  // namespace

void train(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out) {
  train(context, parsed, std::nullopt, nullptr, out);
}

std::optional<double> train_part(ddl::Context& context, const ParsedOptions& parsed, std::int64_t last_step,
                                 const VocabularyPair* vocabularies, std::ostream& out) {
  return train(context, parsed, last_step, vocabularies, out);
}

}  // namespace nmt
