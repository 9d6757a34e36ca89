#include <fmt/format.h>
#include <fmt/ostream.h>

#include <filesystem>
#include <utility>

#include "ddl/broadcast_parameters.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/training/batch_fit.hpp"
#include "nmt_example/training/divergence.hpp"
#include "nmt_example/training/host_mirror.hpp"
#include "nmt_example/training/lstm_choice.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/training_run.hpp"

namespace nmt {

void TrainingRun::start(const SavedRun* saved) {
  if (saved == nullptr) {
    model_.parameters().initialize(backend_, options_.init_op, options_.init_weight, options_.random_seed);
    upload_given(Side::encoder, inputs_.given.source);
    upload_given(Side::decoder, inputs_.given.target);
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
  state_.epochs = inputs_.epochs;
  if (options_.rnn == LstmMethod::automatic) {
    const LstmChoice choice = choose_lstm(context_, options_, backend_, model_, inputs_.train, state_.rnn);
    if (!choice.reason.empty()) state_.rnn = name_of(choice.method);
    how_lstm_ = choice.reason;
  }
  if (!options_.out_dir.empty()) {
    context_.root_only("prepare --out_dir", [&] { prepare_out_dir(); });
  }
  scorer_.keep_best(state_);
}

void TrainingRun::upload_given(Side side, std::optional<EmbeddingVectors>& vectors) {
  if (!vectors) return;
  ParameterSet& parameters = model_.parameters();
  const Tensor table = parameters.value(parameters.layout().index_of(embedding_name(model_.shape(), side)));
  backend_.upload(table.row_range(Embedding::trained_rows, table.rows - Embedding::trained_rows),
                  vectors->values);
  vectors.reset();
}

void TrainingRun::restore(const SavedRun& saved) {
  step_.restore(saved);
  state_ = saved.state();
  go_on_from(saved.path());
}

void TrainingRun::go_on_from(const std::string& checkpoint) {
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
          fmt::format("checkpoint {} is of a run over other sentences, or in another order: {}. Give the "
                      "text, --random_seed, --num_buckets, --src_max_len, --tgt_max_len, --phase1_steps and "
                      "--phase1_max_len of that run, or another --out_dir to start anew.",
                      checkpoint, error.what()));
    }
  });
}

/// Goes back to a good checkpoint, at half the learning rate. Throws, agreed, if it must not or cannot.
void TrainingRun::roll_back(const std::string& diverged) {
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
  if (progress_) {
    progress_->note(fmt::format("{}; going back to step {}, with {:g} of the learning rate", diverged,
                                state_.step, rate_after(state_.rollbacks)));
  }
  open_progress();
  save();
  is_saved_ = true;
}

void TrainingRun::prepare_out_dir() {
  const std::filesystem::path directory = options_.out_dir;
  try {
    create_out_dir(options_);
    ddl::write_file_atomically(directory / "options.json", to_json(options_) + "\n");
  } catch (const ddl::Error& error) {
    throw ddl::Error(error.code(),
                     fmt::format("--out_dir={} cannot be written to: {}", options_.out_dir, error.what()));
  }
}

void TrainingRun::print_header() {
  out_ << describe(model_.parameters().layout(), model_.parameters().gradient_type());
  fmt::print(out_, "{} rank{} on {} host{}, {} thread{} each, {}{}\n", context_.size(),
             context_.size() == 1 ? "" : "s", context_.hosts(), context_.hosts() == 1 ? "" : "s",
             threads_per_rank(context_, options_), threads_per_rank(context_, options_) == 1 ? "" : "s",
             backend_.name(),
             options_.dtype == Dtype::mixed
                 ? fmt::format(" in mixed precision ({})", ddl::to_string(backend_.narrow_type()))
             : options_.dtype == Dtype::tf32 ? " with products of tf32"
                                             : "");
  const TrainingMemory memory = training_memory(options_, inputs_.train, backend_, model_, context_.size());
  fmt::print(
      out_,
      "memory a rank: {:.0f} MB of parameters, {:.0f} of gradients, {:.0f} of the optimiser, {:.0f} of "
      "activations\n",
      megabytes(memory.parameters), megabytes(memory.gradients), megabytes(memory.optimizer),
      megabytes(memory.activations));
  if (!how_lstm_.empty()) fmt::print(out_, "{}\n", how_lstm_);
  const std::int64_t ranks = context_.size();
  const DatasetFacts& facts = inputs_.train.facts();
  fmt::print(out_, "{} training pairs ({} dropped, {} cut), {} steps an epoch of {}\n", inputs_.train.size(),
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

void TrainingRun::open_progress() {
  context_.root_only("open the step log", [&] {
    progress_.emplace(ProgressSettings{.start_step = static_cast<std::int64_t>(state_.step),
                                       .start_words = state_.target_words,
                                       .start_seconds = state_.seconds,
                                       .end = options_.num_train_steps,
                                       .steps_per_stats = options_.steps_per_stats,
                                       .logs = log_files(),
                                       .scores = names_of_scores()},
                      out_, &out_ == &std::cout && standard_output_is_terminal());
  });
}

}  // namespace nmt
