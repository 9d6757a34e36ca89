#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/commands/line_source.hpp"
#include "nmt_example/commands/loaded_model.hpp"
#include "nmt_example/commands/text_output.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/metric.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;

/// Which flag names the model, and what it names.
std::pair<std::string_view, std::string> model_of(const Options& options) {
  if (!options.model.empty()) return {"model", options.model};
  if (!options.ckpt.empty()) return {"ckpt", options.ckpt};
  if (!options.out_dir.empty()) return {"out_dir", options.out_dir};
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   "--model is missing: give a run's directory or a checkpoint")
      .as_agreed();
}

std::string joined(std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

/// The first translation of each line, with its reference.
struct Scored {
  std::vector<std::string> translations, references;

  void add(std::span<const std::string> found, std::span<const std::string> of_lines,
           const Vocabulary& target) {
    for (std::size_t i = 0; i < of_lines.size(); ++i) {
      const std::string& best = found[i * (found.size() / of_lines.size())];
      translations.push_back(best.substr(0, best.find('\t')));  // without --scores, --alignments
      references.push_back(target.join(of_lines[i]));
    }
  }
};

/// Throws `invalid_argument` if the output would replace a file that is read.
void check_output(const Options& options) {
  const std::string& output = options.inference_output_file;
  for (const auto& [flag, path] : {std::pair("inference_input_file", options.inference_input_file),
                                   std::pair("inference_ref_file", options.inference_ref_file)}) {
    std::error_code missing;
    if (path.empty() || output.empty() || !fs::is_regular_file(output, missing)) continue;
    if (!fs::equivalent(path, output, missing)) continue;
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--inference_output_file={} is the file that --{}={} reads; give another",
                                 output, flag, path));
  }
}

/// Translates a window of lines after the other: what there is when the window before is done.
void translate(ddl::Context& context, ParsedOptions parsed) {
  parsed.options.infer = true;
  const auto [flag, path] = model_of(parsed.options);
  context.root_only("check the output file", [&] { check_output(parsed.options); });
  std::vector<LoadedModel> loaded = load_models(context, parsed, flag, path);
  const Options& options = loaded.front().options;
  LineSource source(context, {"inference_input_file", options.inference_input_file},
                    {"inference_ref_file", options.inference_ref_file}, options.inference_list);
  std::optional<TextOutput> output;
  context.root_only("open the output file",
                    [&] { output.emplace("inference_output_file", options.inference_output_file); });

  const VocabularyPair& vocabularies = loaded.front().vocabularies();
  Translator translator(models_of(loaded), vocabularies.source, vocabularies.target, options);
  Profile* const profile = loaded.front().profile;  // of all models
  if (profile != nullptr) profile->begin_step();
  Scored scored;
  std::size_t count = 0;
  double seconds = 0;
  for (LineWindow window; !(window = source.next()).lines.empty();) {
    const auto begin = std::chrono::steady_clock::now();
    const auto translations =
        translator.translate(context, window.lines, options.num_translations_per_input, count);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    count += window.lines.size();
    context.root_only("write the translations", [&] {
      output->write(joined(translations));
      scored.add(translations, window.beside, vocabularies.target);
    });
  }
  std::string report;
  if (profile != nullptr) {
    profile->count_step(seconds);
    report = profile->report();
  }

  context.root_only("finish the translations", [&] {
    output->finish();
    std::FILE* const messages = output->is_standard_output() ? stderr : stdout;
    if (!output->is_standard_output()) {
      fmt::print(messages, "translated {} lines in {:.2f} s, {:.1f} lines/s\n", count, seconds,
                 count == 0 ? 0 : static_cast<double>(count) / seconds);
    }
    fmt::print(messages, "{}", report);
    if (scored.references.empty()) return;
    for (const Metric* metric : options.metrics) {
      fmt::print(messages, "{}\n", metric->score(scored.translations, scored.references).text);
    }
  });
}

}  // namespace

Command translate_command() {
  return {
      {.name = "translate",
       .purpose = "Translates lines of text as they come",
       .example = "  echo \"Two dogs play in the snow.\" | ddl_nmt translate --model=model --beam_width=5\n"
                  "  mpirun -np 2 ddl_nmt translate --model=model/best_bleu < in.en > out.de\n"
                  "  ddl_nmt translate --model=model1,model2,model3 --scores < in.en > out.de\n"
                  "  ddl_nmt translate --model=model --beam_width=5 --alignments < in.en > out.de",
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
                 "scores",
                 "alignments",
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
