#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "nmt_example/training/corpus.hpp"
#include "nmt_example/training/early_stopping.hpp"
#include "nmt_example/training/epochs.hpp"
#include "nmt_example/training/gradient_sync.hpp"
#include "nmt_example/training/moving_average.hpp"
#include "nmt_example/training/optimizer.hpp"

namespace nmt {

/// The best score of a metric, and the step of the model that has it (0: unknown).
struct BestScore {
  double score = 0;
  std::uint64_t step = 0;
};

/// The contents of a checkpoint besides tensors.
struct RunState {
  std::uint64_t step = 0;  ///< Updates done.
  std::string sampler;     ///< Which batches are left, as `TrainingStep::sampler_state`; empty: unknown.
  std::string reducer;     ///< The gradient reducer's `state`; empty: none.
  /// Scores of the dev set, by the directory under --out_dir that keeps the model: best_METRIC,
  /// avg_best_METRIC for averaged models, and best_dev_ppl with --early_stopping=dev_ppl.
  std::map<std::string, BestScore> best = {};
  std::string loss_scale;   ///< As `LossScale::state`; empty: none.
  std::string rnn = {};     ///< What --rnn=auto chose; empty: nothing.
  double target_words = 0;  ///< Trained on so far, with the sentences' ends.
  double seconds = 0;       ///< Spent so far, in all runs together.
  Epochs epochs = {};
  EarlyStopping early_stopping = {};
  int rollbacks = 0;  ///< How often training diverged; each halves the learning rate.
  std::string options_json;

  [[nodiscard]] std::string to_json() const;
  /// Throws `corrupt_data`. A state of an older version, without `sampler`, suffices to translate.
  static RunState from_json(const std::string& json);
};

/// A checkpoint of a run, with its state and vocabularies known to every rank.
class SavedRun {
 public:
  /// Collective; errors are agreed.
  SavedRun(ddl::Context& context, ddl::SavedCheckpoint checkpoint);

  [[nodiscard]] std::string path() const { return checkpoint_.path().string(); }
  [[nodiscard]] const RunState& state() const noexcept { return state_; }
  [[nodiscard]] const VocabularyPair& vocabularies() const { return *vocabularies_; }
  /// Fills the parameters and the optimiser's state on every rank, to go on training. Collective.
  void restore(Backend& backend, ParameterSet& parameters, const Optimizer& optimizer) const;
  /// Fills the parameters on every rank, to translate: with their moving average, if there is one.
  /// Collective.
  void restore_for_translating(Backend& backend, ParameterSet& parameters) const;
  /// Returns false if there is none. Collective.
  [[nodiscard]] bool restore(Backend& backend, const MovingAverage& average) const;
  /// Makes the reduction continue as the saved one. If it cannot, because the ranks or the flags differ, logs
  /// that: its sums may then differ in their last bits. Collective.
  void restore(ddl::Context& context, GradientSync& gradients) const;

 private:
  void restore(const std::string& group, HostMirror&& tensors) const;

  ddl::SavedCheckpoint checkpoint_;
  RunState state_;
  std::optional<VocabularyPair> vocabularies_;
};

/// The newest run that can be continued. Collective; see `ddl::Checkpoint::newest`.
std::optional<SavedRun> newest_run(ddl::Context& context, ddl::Checkpoint& checkpoint);

/// Saves parameters, optimiser, state and vocabularies. `average`: null without one. `residuals`: the
/// gradient reducer's, if any rank has some. Collective.
std::filesystem::path save_run(ddl::Checkpoint& checkpoint, const RunState& state,
                               const VocabularyPair& vocabularies, Backend& backend,
                               const ParameterSet& parameters, const Optimizer& optimizer,
                               const MovingAverage* average = nullptr,
                               std::optional<std::vector<ddl::NamedTensor>> residuals = {});

/// Saves what translating needs: parameters, state and vocabularies. Collective.
std::filesystem::path save_model(ddl::Checkpoint& checkpoint, const RunState& state,
                                 const VocabularyPair& vocabularies, Backend& backend,
                                 const ParameterSet& parameters);

/// Throws `unsupported` if training cannot continue from the checkpoint's state.
void check_resumable(const RunState& saved, const std::string& checkpoint);

/// Throws `mismatch` if the options describe another model than the checkpoint's, naming the flags.
void check_same_model(const Options& saved, const Options& wanted, const std::string& checkpoint);

/// The options with which to go on from a checkpoint, or to translate with it (`with_explicit_options`).
/// Throws `mismatch` if they describe another model, or if --vocab_prefix was given and names other
/// vocabularies.
Options options_of_run(const SavedRun& saved, const ParsedOptions& parsed);

/// Throws `mismatch` if --vocab_prefix names vocabularies that are not the checkpoint's.
void check_same_vocabularies(const VocabularyPair& saved, const Options& wanted,
                             const std::string& checkpoint);

}  // namespace nmt
