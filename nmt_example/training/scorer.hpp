#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/training/corpus.hpp"
#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/progress.hpp"
#include "nmt_example/training/saved_run.hpp"

namespace nmt {

/// Scores a model's translations by each of --metrics, and keeps the best checkpoint by each. Calls are
/// collective; rank 0 has a `Progress` to print to. All arguments of the constructor must outlive it.
class Scorer {
 public:
  /// `checkpoint`: null without --out_dir.
  Scorer(ddl::Context& context, const Options& options, const Texts& texts,
         const VocabularyPair& vocabularies, Backend& backend, Model& model, ddl::Checkpoint* checkpoint);

  /// Scores the dev set, and records in `state` which scores are the best so far. With --avg_ckpts, does the
  /// same with the mean of this model and those of the newest checkpoints before it, and saves that. Returns
  /// whether there is something to save.
  bool score_dev(RunState& state, std::optional<Progress>& progress);
  /// The newest dev scores, by the names of --metrics.
  [[nodiscard]] const std::vector<std::pair<std::string, double>>& dev_scores() const noexcept {
    return dev_scores_;
  }
  /// The step of the newest dev scores.
  [[nodiscard]] std::optional<std::uint64_t> scored_step() const noexcept { return scored_step_; }
  /// Returns the scores by the names of --metrics.
  std::vector<std::pair<std::string, double>> score_test(std::optional<Progress>& progress);

  /// Brings best_METRIC and avg_best_METRIC up to date. A checkpoint is there when its save is complete, so
  /// this is called before the next save, which might remove it, and at the start and end of a run.
  void keep_best(const RunState& state);
  /// For people: by which metrics the model of this step is the best; may be empty.
  [[nodiscard]] std::string praise(const RunState& state) const;

 private:
  bool record(const TextScores& dev, const std::string& prefix, RunState& state) const;
  [[nodiscard]] std::vector<std::pair<std::string, double>> named(const TextScores& text) const;
  bool score_average(RunState& state, std::optional<Progress>& progress);
  std::vector<std::filesystem::path> earlier_checkpoints(std::uint64_t step);

  ddl::Context& context_;
  const Options& options_;
  const Texts& texts_;
  const VocabularyPair& vocabularies_;
  Backend& backend_;
  Model& model_;
  Translator translator_;
  std::vector<const Metric*> metrics_;
  ddl::Checkpoint* checkpoint_;
  std::vector<std::pair<std::string, double>> dev_scores_;
  std::optional<std::uint64_t> scored_step_;
};

}  // namespace nmt
