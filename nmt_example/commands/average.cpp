#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "ddl/checkpoint.hpp"
#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/commands/line_source.hpp"
#include "nmt_example/commands/loaded_model.hpp"
#include "nmt_example/commands/open_run.hpp"
#include "nmt_example/training/best_checkpoints.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& message) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument, message);
}

void check_flags(const Options& options, const std::vector<std::string>& arguments) {
  if (options.out.empty()) refuse("--out is missing: give the directory to write");
  if (options.model.empty() && arguments.empty()) {
    refuse("nothing to average: give checkpoints, or --model=DIR for those of a run");
  }
  if (!options.model.empty() && !arguments.empty()) {
    refuse(fmt::format("--model={} and {}: choose one; --model takes the run's checkpoints", options.model,
                       arguments.front()));
  }
  if (options.last > 0 && options.model.empty()) {
    refuse(fmt::format("--last={}: needs --model=DIR, whose newest checkpoints it takes", options.last));
  }
}

/// The checkpoints of --model.
std::vector<std::string> checkpoints_of(const Options& options) {
  const std::vector<fs::path> found = complete_checkpoints(options.model);
  const auto wanted = options.last > 0 ? static_cast<std::size_t>(options.last) : found.size();
  if (found.empty() || found.size() < wanted) {
    throw ddl::Error(ddl::ErrorCode::io,
                     fmt::format("--model={}: there are {} complete checkpoints, expected {}", options.model,
                                 found.size(), std::max<std::size_t>(wanted, 1)));
  }
  std::vector<std::string> paths;
  for (const fs::path& path : std::span(found).last(wanted)) paths.push_back(path.string());
  return paths;
}

void check_same(const SavedRun& first, const SavedRun& other) {
  check_same_vocabularies(first, other);
  try {
    check_same_model(options_from_json(other.state().options_json),
                     options_from_json(first.state().options_json), other.path());
  } catch (const ddl::Error& error) {
    throw ddl::Error(error.code(), fmt::format("{} and {} cannot be averaged: {}", first.path(), other.path(),
                                               error.what()));
  }
}

/// Averages what would translate: the moving averages of checkpoints that have some.
void average(ddl::Context& context, ParsedOptions parsed) {
  context.on_all_ranks("check the flags", [&] { check_flags(parsed.options, parsed.arguments); });
  parsed.options.infer = true;
  std::vector<std::string> paths = parsed.arguments;
  context.root_only("look at the directories", [&] {
    const fs::path out = parsed.options.out;
    if (fs::exists(out) && (!fs::is_directory(out) || !fs::is_empty(out))) {
      refuse(fmt::format("--out={}: is there already; give a new directory", parsed.options.out));
    }
    if (!parsed.options.model.empty()) paths = checkpoints_of(parsed.options);
  });
  paths = broadcast_lines(context, paths);
  const std::string_view flag = parsed.options.model.empty() ? "" : "model";
  parsed.options.model = paths.back();
  // The last one's options and state are those of the result.
  LoadedModel loaded = load_model(context, parsed, flag, parsed.options.model);
  ParameterSet& parameters = loaded.model->parameters();
  std::vector<float> values(static_cast<std::size_t>(parameters.layout().extent));
  std::vector<double> sums(values.size());
  const auto add = [&] {
    loaded.backend->download(parameters.values(), std::span<float>(values));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  };
  add();
  for (const std::string& path : std::span(paths).first(paths.size() - 1)) {
    const SavedRun other = open_run(context, flag, path);
    context.on_all_ranks("compare the models", [&] { check_same(loaded.saved, other); });
    other.restore_for_translating(*loaded.backend, parameters);
    add();
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    values[i] = static_cast<float>(sums[i] / static_cast<double>(paths.size()));
  }
  loaded.backend->upload(parameters.values(), values);
  ddl::Checkpoint averaged(context, parsed.options.out, {.keep = 1});
  const fs::path written =
      save_model(averaged, loaded.saved.state(), loaded.vocabularies(), *loaded.backend, parameters);
  context.root_only("say what was written", [&] {
    fmt::print("{} is the mean of {} checkpoints: {}\n", written.string(), paths.size(),
               fmt::join(paths, ", "));
  });
}

}  // namespace

Command average_command() {
  return {{.name = "average",
           .purpose = "Writes the mean of checkpoints of a model, to translate with",
           .example = "  ddl_nmt average --model=model --last=5 --out=averaged\n"
                      "  ddl_nmt average --out=averaged model/step-0000008000 model/step-0000009000",
           .flags = {"out", "model", "last", "device", "threads"},
           .arguments = "[CHECKPOINT ...]"},
          average};
}

}  // namespace nmt
