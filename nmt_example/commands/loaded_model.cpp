#include "nmt_example/commands/loaded_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "nmt_example/commands/open_run.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt {

LoadedModel load_model(ddl::Context& context, const ParsedOptions& parsed, std::string_view flag,
                       const std::string& path, const LoadedModel* other) {
  LoadedModel loaded{.saved = open_run(context, flag, path), .options = {}, .backend = {}, .model = {}};
  Options& options = loaded.options;
  context.on_all_ranks("check the options with the checkpoint's", [&] {
    options = options_of_run(loaded.saved, parsed);
    validate(options);
    if (options.alignments && options.attention == AttentionKind::none) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("--alignments: the model in {} has no attention, which words are aligned "
                                   "by; leave it out, or take a model that was trained with --attention",
                                   loaded.saved.path()));
    }
  });
  const std::string without_effect = flags_without_effect(options, parsed);
  if (context.is_root() && !without_effect.empty()) context.log().notice(without_effect);

  if (other != nullptr) {
    loaded.backend = other->backend;
    loaded.profile = other->profile;
  } else {
    std::unique_ptr<Backend> backend = make_backend(context, options);
    if (options.profile) {
      auto profiled = std::make_unique<Profile>(std::move(backend), 0);
      loaded.profile = profiled.get();
      backend = std::move(profiled);
    }
    loaded.backend = std::move(backend);
  }
  const VocabularyPair& vocabularies = loaded.vocabularies();
  loaded.model = std::make_unique<Model>(
      *loaded.backend, model_shape(options, vocabularies.source.size(), vocabularies.target.size()),
      BatchLimits(), nullptr, model_types(options, *loaded.backend));
  loaded.saved.restore_for_translating(*loaded.backend, loaded.model->parameters());
  return loaded;
}

std::vector<LoadedModel> load_models(ddl::Context& context, const ParsedOptions& parsed,
                                     std::string_view flag, const std::string& paths) {
  // Its own name may have a comma.
  const bool is_one = !context.broadcast_string(std::filesystem::exists(paths) ? "one" : "").empty();
  std::vector<LoadedModel> loaded;
  for (std::size_t begin = 0; begin <= paths.size();) {
    const std::size_t end = is_one ? paths.size() : std::min(paths.find(',', begin), paths.size());
    const std::string path = paths.substr(begin, end - begin);
    if (path.empty()) {
      throw ddl::Error(
          ddl::ErrorCode::invalid_argument,
          fmt::format("--{}={}: found an empty path, expected one, or several with commas between", flag,
                      paths))
          .as_agreed();
    }
    loaded.push_back(load_model(context, parsed, flag, path, loaded.empty() ? nullptr : &loaded.front()));
    begin = end + 1;
  }
  context.on_all_ranks("compare the models' vocabularies", [&] {
    for (const LoadedModel& other : loaded) check_same_vocabularies(loaded.front().saved, other.saved);
  });
  return loaded;
}

std::vector<Model*> models_of(std::span<LoadedModel> loaded) {
  std::vector<Model*> models;
  for (const LoadedModel& one : loaded) models.push_back(one.model.get());
  return models;
}

void check_same_vocabularies(const SavedRun& one, const SavedRun& other) {
  const auto check = [&](std::string_view side, const Vocabulary& first, const Vocabulary& second) {
    if (first.serialize() == second.serialize()) return;
    throw ddl::Error(
        ddl::ErrorCode::mismatch,
        fmt::format("{} and {} have different {} vocabularies, of {} and {} entries; models that are "
                    "joined must have the same",
                    one.path(), other.path(), side, first.size(), second.size()));
  };
  check("source", one.vocabularies().source, other.vocabularies().source);
  check("target", one.vocabularies().target, other.vocabularies().target);
}

}  // namespace nmt
