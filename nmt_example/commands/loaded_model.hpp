#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/backend/profile.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/saved_run.hpp"

namespace nmt {

/// A model with the parameters of a checkpoint, to translate and score with.
struct LoadedModel {
  SavedRun saved;
  Options options;  ///< The checkpoint's, changed by the flags of the command.
  std::shared_ptr<Backend> backend;
  Profile* profile = nullptr;  ///< With --profile.
  std::unique_ptr<Model> model;

  [[nodiscard]] const VocabularyPair& vocabularies() const { return saved.vocabularies(); }
};

/// Opens a checkpoint, or the newest in a directory of some, and loads its model on the backend of another,
/// or, without one, on that which its options describe. `flag` is the one that gives the path, for messages.
/// Prints a notice of flags without effect. Collective; errors are agreed.
LoadedModel load_model(ddl::Context& context, const ParsedOptions& parsed, std::string_view flag,
                       const std::string& path, const LoadedModel* other = nullptr);

/// The models of several paths, separated by commas, which read and write the same words, all on the first
/// one's backend.
std::vector<LoadedModel> load_models(ddl::Context& context, const ParsedOptions& parsed,
                                     std::string_view flag, const std::string& paths);
[[nodiscard]] std::vector<Model*> models_of(std::span<LoadedModel> loaded);

/// Throws `mismatch`, naming both, unless the models read and write the same words.
void check_same_vocabularies(const SavedRun& one, const SavedRun& other);

}  // namespace nmt
