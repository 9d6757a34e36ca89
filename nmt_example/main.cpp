#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/options.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/trainer.hpp"

namespace {

void describe(const ddl::Context& context, const nmt::Options& options) {
  if (!context.is_root()) return;
  const auto size = static_cast<std::size_t>(options.vocab_size);
  fmt::print("{}\n{}", nmt::describe(nmt::parameter_layout(nmt::model_shape(options, size, size))),
             nmt::describe_options(options));
}

/// Reads lines, writes their translations.
void infer(ddl::Context& context, const nmt::ParsedOptions& parsed) {
  std::string checkpoint = parsed.options.ckpt;
  if (checkpoint.empty()) {
    checkpoint = nmt::newest_checkpoint(context, parsed.options.out_dir);
    context.on_all_ranks("look for a checkpoint", [&] {
      if (!checkpoint.empty()) return;
      throw ddl::Error(
          ddl::ErrorCode::io,
          fmt::format("no checkpoint under --out_dir={}; train there first, or name one with --ckpt",
                      parsed.options.out_dir));
    });
  }
  const nmt::SavedRun saved(context, checkpoint);
  nmt::Options options;
  context.on_all_ranks("read the checkpoint's options", [&] {
    options = nmt::with_explicit_options(nmt::options_from_json(saved.state().options_json), parsed);
    nmt::check_same_model(nmt::options_from_json(saved.state().options_json), options, checkpoint);
    if (!parsed.options.vocab_prefix.empty())
      nmt::check_same_vocabularies(saved.vocabularies(), options, checkpoint);
  });

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
      nmt::model_shape(options, saved.vocabularies().source.size(), saved.vocabularies().target.size()),
      {1, 1, 1});
  saved.restore(context, *backend, model.parameters(), nullptr);
  nmt::Translator translator(model, saved.vocabularies().source, saved.vocabularies().target, options);
  const auto translations = translator.translate(context, lines);

  context.root_only("write the translations", [&] {
    std::string output;
    for (const std::string& line : translations) output += line + '\n';
    if (!options.inference_output_file.empty()) {
      ddl::write_file_atomically(options.inference_output_file, output);
    } else if (std::fwrite(output.data(), 1, output.size(), stdout) != output.size() ||
               std::fflush(stdout) != 0) {
      throw ddl::Error(ddl::ErrorCode::io, "the translations could not be written to standard output");
    }
  });
}

int run(ddl::Context& context, int argc, char** argv) {
  nmt::ParsedOptions parsed;
  context.on_all_ranks("read the command line", [&] { parsed = nmt::parse_options(argc, argv); });
  if (parsed.help) {
    if (context.is_root()) fmt::print("{}", nmt::help_text());
  } else if (parsed.version) {
    if (context.is_root()) fmt::print("ddl_nmt {}\n", DDL_VERSION);
  } else if (parsed.options.describe) {
    describe(context, parsed.options);
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
