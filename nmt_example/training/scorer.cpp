#include "nmt_example/training/scorer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "nmt_example/training/average.hpp"
#include "nmt_example/training/best_checkpoints.hpp"

namespace nmt {
namespace {

constexpr const char* averages = "avg_checkpoints";

std::string step_name(std::uint64_t step) { return fmt::format("step-{:010}", step); }

}  // namespace

Scorer::Scorer(ddl::Context& context, const Options& options, const Texts& texts,
               const VocabularyPair& vocabularies, Backend& backend, Model& model,
               ddl::Checkpoint* checkpoint)
    : context_(context),
      options_(options),
      texts_(texts),
      vocabularies_(vocabularies),
      backend_(backend),
      model_(model),
      translator_({&model}, vocabularies.source, vocabularies.target, options),
      metrics_(options.metrics),
      checkpoint_(checkpoint) {}

/// Returns whether any score is the best so far.
bool Scorer::record(const TextScores& dev, const std::string& prefix, RunState& state) const {
  bool better = false;
  for (std::size_t m = 0; m < metrics_.size(); ++m) {
    const double score = dev.scores[m].value;
    const std::string keeper = prefix + std::string(metrics_[m]->name);
    const auto best = state.best.find(keeper);
    if (best != state.best.end() && !metrics_[m]->is_better(score, best->second.score)) continue;
    state.best[keeper] = {score, state.step};
    better = true;
  }
  return better;
}

bool Scorer::score_dev(RunState& state, std::optional<Progress>& progress) {
  const TextScores dev = score_text(context_, translator_, texts_.dev, metrics_);
  scored_step_ = state.step;
  dev_scores_ = named(dev);
  if (progress) {
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      progress->score(metrics_[m]->name, dev.scores[m].value);
      progress->note(fmt::format("  external eval step {}: dev {}", state.step, dev.scores[m].text));
    }
    const std::size_t sample = static_cast<std::size_t>(state.step) % texts_.dev.size();
    progress->note(fmt::format("    src: {}\n    ref: {}\n    nmt: {}", texts_.dev.source[sample],
                               texts_.dev.target[sample], dev.translations[sample]));
  }
  const bool better = record(dev, "best_", state);
  return (options_.avg_ckpts && score_average(state, progress)) || better;
}

/// Rank 0's, from the oldest to the newest.
std::vector<std::filesystem::path> Scorer::earlier_checkpoints(std::uint64_t step) {
  checkpoint_->wait();
  std::string names;
  context_.root_only("list the checkpoints", [&] {
    for (const auto& path : complete_checkpoints(options_.out_dir)) {
      if (path.filename() < step_name(step)) names += path.string() + '\n';
    }
  });
  names = context_.broadcast_string(names);
  std::vector<std::filesystem::path> paths;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = names.find('\n', begin);
    paths.emplace_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

/// Returns false if there are too few checkpoints.
bool Scorer::score_average(RunState& state, std::optional<Progress>& progress) {
  const std::vector<std::filesystem::path> paths = earlier_checkpoints(state.step);
  const auto others = static_cast<std::size_t>(options_.num_keep_ckpts) - 1;
  if (paths.size() < others) {
    if (progress) {
      progress->note(fmt::format("  no average yet: {} of {} checkpoints", paths.size() + 1, others + 1));
    }
    return false;
  }
  const AverageOfCheckpoints average(context_, backend_, model_.parameters(), std::span(paths).last(others));
  const TextScores dev = score_text(context_, translator_, texts_.dev, metrics_);
  if (progress) {
    for (const MetricScore& score : dev.scores) {
      progress->note(
          fmt::format("  average of {} checkpoints, step {}: dev {}", others + 1, state.step, score.text));
    }
  }
  record(dev, "avg_best_", state);
  ddl::Checkpoint averaged(context_, std::filesystem::path(options_.out_dir) / averages,
                           {.keep = 1, .sharded = options_.sharded_checkpoints});
  save_model(averaged, state, vocabularies_, backend_, model_.parameters());
  return true;
}

std::vector<std::pair<std::string, double>> Scorer::named(const TextScores& text) const {
  std::vector<std::pair<std::string, double>> scores;
  for (std::size_t m = 0; m < metrics_.size(); ++m)
    scores.emplace_back(metrics_[m]->name, text.scores[m].value);
  return scores;
}

std::vector<std::pair<std::string, double>> Scorer::score_test(std::optional<Progress>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const TextScores test = score_text(context_, translator_, texts_.test, metrics_);
  if (!progress) return named(test);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const MetricScore& score : test.scores) {
    progress->note(fmt::format("test {} in {}", score.text, duration_text(seconds)));
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(5, texts_.test.size()); ++i) {
    progress->note(fmt::format("  src: {}\n  ref: {}\n  nmt: {}", texts_.test.source[i],
                               texts_.test.target[i], test.translations[i]));
  }
  return named(test);
}

void Scorer::keep_best(const RunState& state) {
  if (checkpoint_ == nullptr) return;
  checkpoint_->wait();
  context_.root_only("keep the best checkpoints", [&] {
    const std::filesystem::path directory = options_.out_dir;
    for (const auto& [keeper, best] : state.best) {
      const bool is_average = keeper.starts_with("avg_");
      for (const auto& checkpoint : complete_checkpoints(is_average ? directory / averages : directory)) {
        if (checkpoint.filename() == step_name(best.step)) keep_only(checkpoint, directory / keeper);
      }
    }
  });
}

std::string Scorer::praise(const RunState& state) const {
  std::string text;
  for (const auto& [keeper, best] : state.best) {
    constexpr std::string_view prefix = "best_";
    if (!keeper.starts_with(prefix) || best.step != state.step) continue;
    text +=
        fmt::format("{}{}", text.empty() ? ", the best so far by " : " and ", keeper.substr(prefix.size()));
  }
  return text;
}

}  // namespace nmt
