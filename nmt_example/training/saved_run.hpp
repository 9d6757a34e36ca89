#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "nmt_example/training/corpus.hpp"
#include "nmt_example/training/optimizer.hpp"

namespace nmt {

/// What a checkpoint holds besides tensors.
struct RunState {
  std::uint64_t step = 0;  ///< Updates done.
  std::string sampler;     ///< Which batches are left, as `TrainingStep::sampler_state`; empty: not known.
  double best_bleu = -1;   ///< Of the dev set; below 0: none yet.
  std::string options_json;

  [[nodiscard]] std::string to_json() const;
  /// Throws `corrupt_data`. What was saved before there was `sampler` is read without it: enough to
  /// translate.
  static RunState from_json(const std::string& json);
};

/// A checkpoint opened by rank 0, its state and vocabularies known to every rank.
class SavedRun {
 public:
  /// Collective; errors are agreed.
  SavedRun(ddl::Context& context, const std::filesystem::path& checkpoint);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const RunState& state() const noexcept { return state_; }
  [[nodiscard]] const VocabularyPair& vocabularies() const { return *vocabularies_; }
  /// Fills the parameters, and the optimiser's state where one is given, on every rank. Collective.
  void restore(ddl::Context& context, Backend& backend, ParameterSet& parameters,
               const Optimizer* optimizer) const;

 private:
  std::string path_;
  RunState state_;
  std::optional<VocabularyPair> vocabularies_;
  std::optional<ddl::CheckpointReader> reader_;  // rank 0's
};

/// Path of the newest checkpoint under a directory as rank 0 sees it; empty if there is none. Collective.
std::string newest_checkpoint(ddl::Context& context, const std::filesystem::path& directory);

/// Saves parameters, optimiser, state and vocabularies. Rank 0 only.
std::filesystem::path save_run(ddl::CheckpointDirectory& directory, const RunState& state,
                               const VocabularyPair& vocabularies, Backend& backend,
                               const ParameterSet& parameters, const Optimizer& optimizer);

/// Throws `unsupported` if training cannot go on from the checkpoint's state.
void check_resumable(const RunState& saved, const std::string& checkpoint);

/// Throws `mismatch` if the options describe another model than the checkpoint's, naming the flags.
void check_same_model(const Options& saved, const Options& wanted, const std::string& checkpoint);

/// Throws `mismatch` if --vocab_prefix names vocabularies that are not the checkpoint's.
void check_same_vocabularies(const VocabularyPair& saved, const Options& wanted,
                             const std::string& checkpoint);

}  // namespace nmt
