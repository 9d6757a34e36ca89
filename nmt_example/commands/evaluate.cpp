#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/commands/line_source.hpp"
#include "nmt_example/commands/loaded_model.hpp"
#include "nmt_example/data/line_reader.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/metric.hpp"

namespace nmt {
namespace {

void check_evaluate_flags(const Options& options) {
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) throw ddl::Error(ddl::ErrorCode::invalid_argument, message);
  };
  require(!options.ref.empty(), "--ref is missing: give the file of references");
  require(options.hyp.empty() || options.model.empty(),
          fmt::format("--hyp={} and --model={}: choose one; --model translates --src_file first", options.hyp,
                      options.model));
  require(options.hyp.empty() || options.src_file.empty(),
          fmt::format("--hyp={} and --src_file={}: choose one; translations need no source", options.hyp,
                      options.src_file));
  require(!options.hyp.empty() || !options.model.empty(),
          "--hyp is missing: give a file of translations, or --model and --src_file to make them");
  require(options.model.empty() || !options.src_file.empty(),
          fmt::format("--src_file is missing: --model={} needs lines to translate", options.model));
}

void check_counts(std::string_view flag, const std::string& path, std::size_t lines, const std::string& ref,
                  std::size_t references) {
  if (references == 0) {
    throw ddl::Error(ddl::ErrorCode::corrupt_data, fmt::format("--ref={}: the file is empty", ref));
  }
  if (lines == references) return;
  throw ddl::Error(
      ddl::ErrorCode::mismatch,
      fmt::format("--{}={} has {} lines and --ref={} {}; line i of one must belong to line i of the "
                  "other",
                  flag, path, lines, ref, references));
}

void evaluate(ddl::Context& context, ParsedOptions parsed) {
  const Options& given = parsed.options;
  context.on_all_ranks("check the flags", [&] { check_evaluate_flags(given); });
  const bool translates = !given.model.empty();
  std::vector<std::string> references, lines;
  context.root_only("read the files", [&] {
    references = read_lines(given.ref);
    lines = read_lines(translates ? given.src_file : given.hyp);
    check_counts(translates ? "src_file" : "hyp", translates ? given.src_file : given.hyp, lines.size(),
                 given.ref, references.size());
  });
  if (translates) {
    parsed.options.infer = true;
    std::vector<LoadedModel> loaded = load_models(context, parsed, "model", given.model);
    const auto& [source, target] = loaded.front().vocabularies();
    Translator translator(models_of(loaded), source, target, loaded.front().options);
    lines = translator.translate(context, broadcast_lines(context, lines));
    for (std::string& line : references) line = target.join(line);
  }
  context.root_only("print the scores", [&] {
    for (const Metric* metric : given.metrics) fmt::print("{}\n", metric->score(lines, references).text);
  });
}

}  // namespace

Command evaluate_command() {
  return {
      {.name = "evaluate",
       .purpose = "Scores translations, or a model's translations of a file, by metrics",
       .example =
           "  ddl_nmt evaluate --hyp=out.de --ref=test.de --metrics=bleu,chrf,ter\n"
           "  mpirun -np 2 ddl_nmt evaluate --model=model --src_file=test.en --ref=test.de --beam_width=5",
       .flags = {"hyp", "ref", "metrics", "model", "src_file", "infer_mode", "beam_width",
                 "length_penalty_weight", "coverage_penalty_weight", "infer_batch_size", "src_max_len_infer",
                 "tgt_max_len_infer", "dtype", "mixed_type", "device", "threads"}},
      evaluate};
}

}  // namespace nmt
