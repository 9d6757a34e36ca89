#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/training_run.hpp"

namespace nmt {
namespace {

constexpr const char* best_by_perplexity = "best_dev_ppl";

}  // namespace

/// With --ema_decay, while the result lives, what is evaluated are the averages.
std::unique_ptr<MovingAverage::InModel> TrainingRun::averages_in_model() const {
  return average_ ? std::make_unique<MovingAverage::InModel>(*average_) : nullptr;
}

void TrainingRun::report_dev_loss() {
  if (!inputs_.dev) return;
  const auto averaged = averages_in_model();
  dev_perplexity_ = std::exp(mean_loss(context_, model_, *inputs_.dev));
  if (progress_) progress_->note(fmt::format("  eval step {}: dev ppl {:.2f}", state_.step, dev_perplexity_));
  log_scores("dev_", std::vector{std::pair<std::string, double>("ppl", dev_perplexity_)});
  // JSON has no infinity.
  if (options_.early_stopping != dev_perplexity || !std::isfinite(dev_perplexity_)) return;
  const auto best = state_.best.find(best_by_perplexity);
  if (best == state_.best.end() || dev_perplexity_ < best->second.score)
    state_.best[best_by_perplexity] = {dev_perplexity_, state_.step};
}

bool TrainingRun::score_dev() {
  const auto averaged = averages_in_model();
  const bool better = scorer_.score_dev(state_, progress_);
  log_scores("dev_", scorer_.dev_scores());
  return better;
}

/// For early stopping, of the scores that are due at this step.
void TrainingRun::note_scores(bool perplexity, bool metrics) {
  const std::string& by = options_.early_stopping;
  if (perplexity && inputs_.dev && by == dev_perplexity) {
    state_.early_stopping.note(by, dev_perplexity_, state_.step);
  }
  if (!metrics) return;
  for (const auto& [name, score] : scorer_.dev_scores()) {
    if (name == by) state_.early_stopping.note(by, score, state_.step);
  }
}

void TrainingRun::report_test_loss() {
  if (inputs_.texts.test.size() == 0) return;
  std::optional<Dataset> test;
  context_.on_all_ranks("encode the test text", [&] {
    const ParallelText text{inputs_.texts.test.source, inputs_.texts.test.source};
    test.emplace(encode(text, inputs_.vocabularies.source, inputs_.vocabularies.target, 0, 0));
  });
  const auto averaged = averages_in_model();
  const double perplexity = std::exp(mean_loss(context_, model_, *test));
  if (progress_) progress_->note(fmt::format("test ppl {:.2f}", perplexity));
  log_scores("test_", std::vector{std::pair<std::string, double>("ppl", perplexity)});
}

/// A language model is scored by its perplexity alone.
void TrainingRun::score_at_end() {
  if (!translates()) return report_test_loss();
  if (inputs_.dev && scorer_.scored_step() != state_.step && score_dev()) save();
  if (inputs_.texts.test.size() > 0) {
    const auto averaged = averages_in_model();
    log_scores("test_", scorer_.score_test(progress_));
  }
}

void TrainingRun::save() {
  if (checkpoint_ == nullptr) return;
  scorer_.keep_best(state_);
  state_.seconds = seconds_before_ + seconds_so_far();
  state_.sampler = step_.sampler_state();
  state_.loss_scale = state_of(step_.loss_scale());
  state_.reducer = step_.gradients().state();
  const auto path = save_run(*checkpoint_, state_, inputs_.vocabularies, backend_, model_.parameters(),
                             optimizer_, average(), step_.residuals());
  if (!progress_) return;
  progress_->note(fmt::format("  {} {}{}", options_.background_checkpoints ? "saving" : "saved",
                              path.string(), scorer_.praise(state_)));
}

/// Calls `write` on rank 0. A full disk must end every rank, not only the one that writes the log.
void TrainingRun::write_logs(const std::function<void(Progress&)>& write) {
  if (!log_files().any()) {
    if (progress_) write(*progress_);
  } else {
    context_.root_only("write the step log", [&] { write(*progress_); });
  }
}

/// Logs scores, whose names get the prefix.
void TrainingRun::log_scores(const std::string& prefix,
                             std::span<const std::pair<std::string, double>> scores) {
  std::vector<LogValue> values;
  for (const auto& [name, score] : scores) values.push_back({prefix + name, score});
  write_logs([&](Progress& p) { p.log(static_cast<std::int64_t>(state_.step), values); });
}

LogFiles TrainingRun::log_files() const {
  const bool by_default = options_.log_jsonl.empty() && !options_.out_dir.empty();
  return {.jsonl = by_default ? (std::filesystem::path(options_.out_dir) / "log.jsonl").string()
                              : options_.log_jsonl,
          .csv = options_.log_csv,
          .tensorboard = options_.log_dir};
}

/// The names that `log_scores` uses.
std::vector<std::string> TrainingRun::names_of_scores() const {
  std::vector<std::string> names;
  for (const std::string prefix : {"dev_", "test_"}) {
    names.push_back(prefix + "ppl");
    if (!translates()) continue;
    for (const Metric* metric : options_.metrics) names.push_back(prefix + std::string(metric->name));
  }
  return names;
}

}  // namespace nmt
