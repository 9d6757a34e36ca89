#include "nmt_example/inference/translator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "nmt_example/inference/alignment.hpp"
#include "nmt_example/inference/line_results.hpp"
#include "nmt_example/inference/model_scorer.hpp"

namespace nmt {

Translator::Translator(std::vector<Model*> models, const Vocabulary& source, const Vocabulary& target,
                       const Options& options)
    : models_(std::move(models)),
      source_(source),
      target_(target),
      sampling_{options.sampling_temperature, 1, options.random_seed, options.tgt_max_len_infer},
      samples_(options.sampling_temperature > 0),
      writes_scores_(options.infer && options.scores),
      writes_alignments_(options.infer && options.alignments),
      batch_size_(options.infer_batch_size),
      source_max_(options.src_max_len_infer) {
  if (options.beam_width > 0) {
    settings_ = {options.beam_width, options.length_penalty_weight, options.coverage_penalty_weight, 0};
  }
  settings_.max_steps = options.tgt_max_len_infer;
}

std::vector<std::string> Translator::translate(std::span<const std::string> lines, int each) {
  return translate(lines, each, 1, 1);
}

std::vector<std::string> Translator::translate(std::span<const std::string> lines, int each,
                                               std::size_t first, std::size_t stride) {
  cut_ = 0;
  settings_.translations = each;
  sampling_.samples = each;
  const auto of_each = static_cast<std::size_t>(each);
  std::vector<std::string> translations(lines.size() * of_each);
  std::vector<std::vector<std::int32_t>> encoded(lines.size());
  std::vector<std::size_t> order;
  const auto translation_of = [&](std::size_t begin, std::size_t i) -> std::string& {
    return translations[order[begin + i / of_each] * of_each + i % of_each];
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    encoded[i] = source_.encode(lines[i]);
    if (source_max_ > 0 && source_.cut(encoded[i], static_cast<std::size_t>(source_max_))) {
      if (cut_++ == 0) first_cut_ = first + i * stride;
    }
    if (!encoded[i].empty()) order.push_back(i);
  }
  if (order.empty()) return translations;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return encoded[a].size() > encoded[b].size(); });

  const int beam = samples_ ? each : settings_.beam_width;
  std::size_t words = 0;
  for (const std::vector<std::int32_t>& line : encoded) words += line.size();
  std::vector<SearchModel> searches;
  searches.reserve(models_.size());
  for (Model* const model : models_)
    searches.emplace_back(*model, beam).expect(static_cast<std::int64_t>(words) * beam);
  std::vector<std::int32_t> source, lengths;
  std::vector<std::uint64_t> numbers;
  for (std::size_t begin = 0, count = 0; begin < order.size(); begin += count) {
    const std::size_t steps = encoded[order[begin]].size();
    const auto bytes = [&](std::size_t sentences) {
      std::size_t sum = 0;
      for (SearchModel& search : searches)
        sum += search.workspace_bytes(static_cast<std::int64_t>(sentences), static_cast<std::int64_t>(steps));
      return sum;
    };
    if (bytes(1) > largest_workspace) {
      throw ddl::Error(
          ddl::ErrorCode::unsupported,
          fmt::format(
              "line {} has {} words or pieces; translating it needs {:.1f} GB of working memory, "
              "expected at most {:.1f} GB. Split the line, or cut long ones with --src_max_len_infer=N.",
              first + order[begin] * stride, steps, static_cast<double>(bytes(1)) / 1e9,
              static_cast<double>(largest_workspace) / 1e9));
    }
    count = std::min(static_cast<std::size_t>(batch_size_), order.size() - begin);
    while (bytes(count) > largest_workspace) count = (count + 1) / 2;
    source.assign(steps * count, Vocabulary::eos_id);
    lengths.resize(count);
    numbers.resize(count);
    for (std::size_t b = 0; b < count; ++b) {
      numbers[b] = first + order[begin + b] * stride;
      const auto& ids = encoded[order[begin + b]];
      lengths[b] = static_cast<std::int32_t>(ids.size());
      for (std::size_t t = 0; t < ids.size(); ++t) source[t * count + b] = ids[t];
    }
    BatchView batch;
    batch.sentences = static_cast<std::int64_t>(count);
    batch.source_steps = static_cast<std::int64_t>(steps);
    batch.source = source;
    batch.source_lengths = lengths;
    for (SearchModel& search : searches) search.start(batch);
    ModelScorer scorer(searches);
    const auto found =
        samples_ ? sample(scorer, lengths, numbers, sampling_) : beam_search(scorer, lengths, settings_);
    std::vector<std::vector<std::int32_t>> source_words(count);
    std::vector<TranslationToAlign> to_align;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t b = i / of_each;
      std::string& translation = translation_of(begin, i);
      translation = target_.decode(found[i].words);
      if (writes_scores_) translation += fmt::format("\t{:.6g}", found[i].score);
      if (!writes_alignments_) continue;
      if (i % of_each == 0) source_words[b] = source_.word_numbers(lines[order[begin + b]]);
      source_words[b].resize(encoded[order[begin + b]].size());
      to_align.push_back({b, found[i].words, target_.word_numbers(found[i].words), source_words[b]});
    }
    if (!writes_alignments_) continue;
    for (SearchModel& search : searches) search.start(batch);
    const std::vector<std::string> alignments = align(scorer, to_align);
    for (std::size_t i = 0; i < found.size(); ++i) translation_of(begin, i) += '\t' + alignments[i];
  }
  return translations;
}

std::vector<std::string> Translator::translate(ddl::Context& context, std::span<const std::string> lines,
                                               int each, std::size_t before) {
  const auto ranks = static_cast<std::size_t>(context.size());
  const auto rank = static_cast<std::size_t>(context.rank());
  std::vector<std::string> mine;
  for (std::size_t i = rank; i < lines.size(); i += ranks) mine.push_back(lines[i]);
  std::string joined;
  context.on_all_ranks("translate", [&] {
    for (const std::string& line : translate(mine, each, before + rank + 1, ranks)) joined += line + '\n';
  });
  if (source_max_ > 0 && !noticed_) {
    double count[1] = {static_cast<double>(cut_)};
    double number[1] = {static_cast<double>(cut_ > 0 ? first_cut_ : before + lines.size())};
    context.communicator().all_reduce(std::span(count));
    context.communicator().all_reduce(std::span(number), ddl::ReduceOp::min);
    noticed_ = count[0] > 0;
    if (noticed_ && context.is_root()) {
      context.log().notice(
          fmt::format("{} of {} lines are cut to --src_max_len_infer={} words or pieces; the "
                      "first is line {}",
                      count[0], lines.size(), source_max_, number[0]));
    }
  }
  return results_of_ranks(context, joined, lines.size(), static_cast<std::size_t>(each));
}

}  // namespace nmt
