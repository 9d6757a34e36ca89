#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/saved_run.hpp"
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

/// Opens the checkpoint to translate with: --ckpt, or the newest one under --out_dir.
nmt::SavedRun open_run(ddl::Context& context, const nmt::Options& options) {
  if (!options.ckpt.empty()) return {context, ddl::SavedCheckpoint::open(context, options.ckpt)};
  ddl::Checkpoint checkpoints(context, options.out_dir);
  if (auto newest = nmt::newest_run(context, checkpoints)) return std::move(*newest);
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("no checkpoint under --out_dir={}; train there first, or name one with --ckpt",
                               options.out_dir))
      .as_agreed();
}

/// Reads lines, writes their translations.
void infer(ddl::Context& context, const nmt::ParsedOptions& parsed) {
  const nmt::SavedRun saved = open_run(context, parsed.options);
  nmt::Options options;
  context.on_all_ranks("read the checkpoint's options", [&] {
    options = nmt::with_explicit_options(nmt::options_from_json(saved.state().options_json), parsed);
    nmt::check_same_model(nmt::options_from_json(saved.state().options_json), options, saved.path());
    if (!parsed.options.vocab_prefix.empty())
      nmt::check_same_vocabularies(saved.vocabularies(), options, saved.path());
  });

  context.root_only("look at the output file", [&] { check_output(options.inference_output_file); });
  std::string text;
  context.root_only("read the lines to translate", [&] {
    const auto lines = options.inference_input_file.empty() ? nmt::read_lines(std::cin, "standard input")
                                                            : nmt::read_lines(options.inference_input_file);
    for (const std::string& line : lines) text += line + '\n';
  });
  text = context.broadcast_string(text);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }

  options.device = parsed.options.device;  // The checkpoint may come from a machine with other devices.
  const auto backend = nmt::make_backend(context, options);
  nmt::Model model(
      *backend,
      nmt::model_shape(options, saved.vocabularies().source.size(), saved.vocabularies().target.size()), {});
  saved.restore(*backend, model.parameters(), nullptr);
  nmt::Translator translator(model, saved.vocabularies().source, saved.vocabularies().target, options);
  const auto translations = translator.translate(context, lines);

  context.root_only("write the translations", [&] {
    std::string output;
    for (const std::string& line : translations) output += line + '\n';
    write_output(options.inference_output_file, output);
  });
}

int run(ddl::Context& context, int argc, char** argv) {
  nmt::ParsedOptions parsed;
  context.on_all_ranks("read the command line", [&] { parsed = nmt::parse_options(argc, argv); });
  if (parsed.help) {
    context.root_only("help", [] { fmt::print("{}", nmt::help_text()); });
  } else if (parsed.version) {
    context.root_only("version", [] { fmt::print("ddl_nmt {}\n", DDL_VERSION); });
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
