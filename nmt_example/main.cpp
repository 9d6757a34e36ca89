#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "nmt_example/backend/profile.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/best_checkpoints.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/trainer.hpp"

namespace {

void describe(const nmt::Options& options) {
  const auto size = static_cast<std::size_t>(options.vocab_size);
  fmt::print("{}\n{}", nmt::describe(nmt::parameter_layout(nmt::model_shape(options, size, size))),
             nmt::describe_options(options));
}

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

/// Opens the checkpoint to translate with: --ckpt, or the newest one under it or under --out_dir.
nmt::SavedRun open_run(ddl::Context& context, const nmt::Options& options) {
  std::string directory;
  context.root_only("look at --ckpt", [&] {
    const bool is_checkpoint = std::filesystem::exists(std::filesystem::path(options.ckpt) / "manifest.json");
    if (options.ckpt.empty()) {
      directory = options.out_dir;
    } else if (!is_checkpoint && !nmt::complete_checkpoints(options.ckpt).empty()) {
      directory = options.ckpt;
    }
  });
  directory = context.broadcast_string(directory);
  if (directory.empty()) return {context, ddl::SavedCheckpoint::open(context, options.ckpt)};
  ddl::Checkpoint checkpoints(context, directory);
  if (auto newest = nmt::newest_run(context, checkpoints)) return std::move(*newest);
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("no checkpoint under --out_dir={}; train there first, or name one with --ckpt",
                               options.out_dir))
      .as_agreed();
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

/// The lines to translate and their references, as --inference_list and --inference_ref_file say.
struct Input {
  std::vector<std::string> lines, references;
};

Input read_input(const nmt::Options& options) {
  Input input;
  input.lines = options.inference_input_file.empty() ? nmt::read_lines(std::cin, "standard input")
                                                     : nmt::read_lines(options.inference_input_file);
  const auto selected = nmt::inference_indices(options.inference_list, input.lines.size());
  if (!options.inference_ref_file.empty()) {
    input.references = nmt::read_lines(options.inference_ref_file);
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
void print_scores(const nmt::Options& options, const nmt::Vocabulary& target,
                  std::span<const std::string> translations, std::vector<std::string> references) {
  if (references.empty()) return;
  std::vector<std::string> first;
  for (std::size_t i = 0; i < references.size(); ++i) {
    references[i] = target.join(references[i]);
    first.push_back(translations[i * static_cast<std::size_t>(options.num_translations_per_input)]);
  }
  for (const nmt::Metric* metric : options.metrics) {
    fmt::print(options.inference_output_file.empty() ? stderr : stdout, "{}\n",
               metric->score(first, references).text);
  }
}

/// Reads lines, writes their translations.
void infer(ddl::Context& context, const nmt::ParsedOptions& parsed) {
  const nmt::SavedRun saved = open_run(context, parsed.options);
  nmt::Options options;
  context.on_all_ranks("read the checkpoint's options", [&] {
    options = nmt::options_of_run(saved, parsed);
    nmt::validate(options);
  });
  const std::string without_effect = nmt::flags_without_effect(options, parsed);
  if (context.is_root() && !without_effect.empty()) context.log().notice(without_effect);

  context.root_only("look at the output file", [&] { check_output(options.inference_output_file); });
  Input input;
  std::string text;
  context.root_only("read the lines to translate", [&] {
    input = read_input(options);
    for (const std::string& line : input.lines) text += line + '\n';
  });
  const std::vector<std::string> lines = split_lines(context.broadcast_string(text));

  std::unique_ptr<nmt::Backend> backend = nmt::make_backend(context, options);
  nmt::Profile* profile = nullptr;
  if (options.profile) {
    auto profiled = std::make_unique<nmt::Profile>(std::move(backend), 0);
    profile = profiled.get();
    backend = std::move(profiled);
  }
  nmt::Model model(
      *backend,
      nmt::model_shape(options, saved.vocabularies().source.size(), saved.vocabularies().target.size()), {},
      nullptr, nmt::model_types(options, *backend));
  saved.restore_for_translating(*backend, model.parameters());
  nmt::Translator translator(model, saved.vocabularies().source, saved.vocabularies().target, options);
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

int run(ddl::Context& context, int argc, char** argv) {
  nmt::ParsedOptions parsed;
  context.on_all_ranks("read the command line", [&] { parsed = nmt::parse_options(argc, argv); });
  for (const std::string& notice : parsed.notices) {
    if (context.is_root()) context.log().notice(notice);
  }
  if (parsed.help) {
    context.root_only("help", [&] { fmt::print("{}", nmt::help_text(parsed.help_all)); });
  } else if (parsed.version) {
    context.root_only("version", [] { fmt::print("ddl_nmt {}\n", DDL_VERSION); });
  } else if (parsed.options.dump_config) {
    context.root_only("print the options", [&] { fmt::print("{}\n", nmt::config_of(parsed.options)); });
  } else if (parsed.options.describe) {
    context.root_only("describe the model", [&] { describe(parsed.options); });
  } else if (parsed.options.infer) {
    infer(context, parsed);
  } else {
    nmt::train(context, parsed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ddl::Context::run_from_environment([&](ddl::Context& context) { return run(context, argc, argv); });
}
