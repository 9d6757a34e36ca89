#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "ddl/checkpoint.hpp"
#include "ddl/log.hpp"
#include "nmt_example/backend/profile.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/commands/open_run.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt {
namespace {

/// Whether `path` may be replaced as a whole. A device or a pipe must not be: a rename would remove it.
bool is_plain_file(const std::filesystem::path& path) {
  return !std::filesystem::exists(path) || std::filesystem::is_regular_file(path);
}

/// Throws if the translations could not be written, before any time is spent on making them.
void check_output(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path file = path;
  const bool exists = std::filesystem::exists(file);
  const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
  errno = exists && std::filesystem::is_directory(file) ? EISDIR : 0;
  if (errno == 0 && ::access(is_plain_file(file) ? directory.c_str() : file.c_str(), W_OK) == 0) return;
  throw ddl::Error(ddl::ErrorCode::io, fmt::format("--inference_output_file={}: cannot be written: {}", path,
                                                   std::strerror(errno)));
}

void write_output(const std::string& path, const std::string& text) {
  if (!path.empty() && is_plain_file(path)) return ddl::write_file_atomically(path, text);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      path.empty() ? stdout : std::fopen(path.c_str(), "w"),
      [](std::FILE* f) { return f == stdout ? 0 : std::fclose(f); });
  if (file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
      std::fflush(file.get()) == 0) {
    return;
  }
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("the translations could not be written to {}: {}",
                               path.empty() ? "standard output" : path, std::strerror(errno)));
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Which flag names the model, and what it names.
std::pair<std::string_view, std::string> model_of(const Options& options) {
  if (!options.model.empty()) return {"model", options.model};
  if (!options.ckpt.empty()) return {"ckpt", options.ckpt};
  if (!options.out_dir.empty()) return {"out_dir", options.out_dir};
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   "--model is missing: give a run's directory or a checkpoint")
      .as_agreed();
}

/// The lines to translate and their references, as --inference_list and --inference_ref_file say.
struct Input {
  std::vector<std::string> lines, references;
};

Input read_input(const Options& options) {
  Input input;
  input.lines = options.inference_input_file.empty() ? read_lines(std::cin, "standard input")
                                                     : read_lines(options.inference_input_file);
  const auto selected = inference_indices(options.inference_list, input.lines.size());
  if (!options.inference_ref_file.empty()) {
    input.references = read_lines(options.inference_ref_file);
    if (input.references.size() != input.lines.size()) {
      throw ddl::Error(
          ddl::ErrorCode::mismatch,
          fmt::format("--inference_ref_file={} has {} lines and the input {}; line i of one must "
                      "be the reference of line i of the other",
                      options.inference_ref_file, input.references.size(), input.lines.size()));
    }
  }
  if (options.inference_list.empty()) return input;
  Input chosen;
  for (const std::size_t line : selected) {
    chosen.lines.push_back(input.lines[line]);
    if (!input.references.empty()) chosen.references.push_back(input.references[line]);
  }
  return chosen;
}

/// Prints the metrics of the first translation of each line, to standard error if the translations are on
/// standard output.
void print_scores(const Options& options, const Vocabulary& target, std::span<const std::string> translations,
                  std::vector<std::string> references) {
  if (references.empty()) return;
  std::vector<std::string> first;
  for (std::size_t i = 0; i < references.size(); ++i) {
    references[i] = target.join(references[i]);
    first.push_back(translations[i * static_cast<std::size_t>(options.num_translations_per_input)]);
  }
  for (const Metric* metric : options.metrics) {
    fmt::print(options.inference_output_file.empty() ? stderr : stdout, "{}\n",
               metric->score(first, references).text);
  }
}

/// Reads lines, writes their translations.
void translate(ddl::Context& context, ParsedOptions parsed) {
  parsed.options.infer = true;
  const auto [flag, path] = model_of(parsed.options);
  const SavedRun saved = open_run(context, flag, path);
  Options options;
  context.on_all_ranks("read the checkpoint's options", [&] {
    options = options_of_run(saved, parsed);
    validate(options);
  });
  const std::string without_effect = flags_without_effect(options, parsed);
  if (context.is_root() && !without_effect.empty()) context.log().notice(without_effect);

  context.root_only("look at the output file", [&] { check_output(options.inference_output_file); });
  Input input;
  std::string text;
  context.root_only("read the lines to translate", [&] {
    input = read_input(options);
    for (const std::string& line : input.lines) text += line + '\n';
  });
  const std::vector<std::string> lines = split_lines(context.broadcast_string(text));

  std::unique_ptr<Backend> backend = make_backend(context, options);
  Profile* profile = nullptr;
  if (options.profile) {
    auto profiled = std::make_unique<Profile>(std::move(backend), 0);
    profile = profiled.get();
    backend = std::move(profiled);
  }
  Model model(*backend,
              model_shape(options, saved.vocabularies().source.size(), saved.vocabularies().target.size()),
              {}, nullptr, model_types(options, *backend));
  saved.restore_for_translating(*backend, model.parameters());
  Translator translator(model, saved.vocabularies().source, saved.vocabularies().target, options);
  if (profile != nullptr) profile->begin_step();
  const auto begin = std::chrono::steady_clock::now();
  const auto translations = translator.translate(context, lines, options.num_translations_per_input);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::string report;
  if (profile != nullptr) {
    profile->end_step(seconds);
    report = profile->report();
  }

  context.root_only("write the translations", [&] {
    std::string output;
    for (const std::string& line : translations) output += line + '\n';
    write_output(options.inference_output_file, output);
    if (!options.inference_output_file.empty()) {
      fmt::print("translated {} lines in {:.2f} s, {:.1f} lines/s\n", lines.size(), seconds,
                 static_cast<double>(lines.size()) / seconds);
    }
    fmt::print(options.inference_output_file.empty() ? stderr : stdout, "{}", report);
    print_scores(options, saved.vocabularies().target, translations, std::move(input.references));
  });
}

}  // namespace

Command translate_command() {
  return {
      {.name = "translate",
       .purpose = "Translates lines of text with a trained model",
       .example = "  echo \"Two dogs play in the snow.\" | ddl_nmt translate --model=model --beam_width=5",
       .flags = {"model",
                 "inference_input_file",
                 "inference_output_file",
                 "inference_list",
                 "inference_ref_file",
                 "metrics",
                 "infer_mode",
                 "beam_width",
                 "length_penalty_weight",
                 "coverage_penalty_weight",
                 "sampling_temperature",
                 "random_seed",
                 "num_translations_per_input",
                 "infer_batch_size",
                 "src_max_len_infer",
                 "tgt_max_len_infer",
                 "dtype",
                 "mixed_type",
                 "device",
                 "threads",
                 "profile"}},
      translate};
}

}  // namespace nmt
