#include <fmt/format.h>

#include <optional>

#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/commands/line_source.hpp"
#include "nmt_example/commands/loaded_model.hpp"
#include "nmt_example/commands/text_output.hpp"
#include "nmt_example/inference/pair_scorer.hpp"

namespace nmt {
namespace {

void check_score_flags(const Options& options) {
  const std::pair<std::string_view, const std::string*> needed[] = {
      {"model", &options.model}, {"src_file", &options.src_file}, {"tgt_file", &options.tgt_file}};
  for (const auto& [flag, value] : needed) {
    if (value->empty()) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("--{} is missing: score needs --model, --src_file and --tgt_file", flag));
    }
  }
}

void score(ddl::Context& context, ParsedOptions parsed) {
  context.on_all_ranks("check the flags", [&] { check_score_flags(parsed.options); });
  parsed.options.infer = true;
  const LoadedModel loaded = load_model(context, parsed, "model", parsed.options.model);
  LineSource source(context, {"src_file", parsed.options.src_file}, {"tgt_file", parsed.options.tgt_file});
  const PairScorer scorer(*loaded.model, loaded.vocabularies().source, loaded.vocabularies().target,
                          loaded.options.infer_batch_size, loaded.options.alignments);
  std::optional<TextOutput> output;
  context.root_only("open the output", [&] { output.emplace("out", ""); });
  std::size_t count = 0;
  for (LineWindow window; !(window = source.next()).lines.empty();) {
    const std::vector<PairScore> scores = scorer.score(context, window.lines, window.beside, count);
    count += scores.size();
    context.root_only("write the scores", [&] {
      std::string text;
      for (const PairScore& pair : scores) {
        text += fmt::format("{:.5f}\t{:.5f}{}\n", pair.log_probability,
                            pair.log_probability / static_cast<double>(pair.words),
                            loaded.options.alignments ? "\t" + pair.alignment : "");
      }
      output->write(text);
    });
  }
}

}  // namespace

Command score_command() {
  return {{.name = "score",
           .purpose = "Prints how probable a model finds given translations",
           .example = "  mpirun -np 2 ddl_nmt score --model=model --src_file=test.en --tgt_file=test.de",
           .flags = {"model", "src_file", "tgt_file", "alignments", "infer_batch_size", "dtype", "mixed_type",
                     "device", "threads"}},
          score};
}

}  // namespace nmt
