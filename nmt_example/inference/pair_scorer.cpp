#include "nmt_example/inference/pair_scorer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/inference/alignment.hpp"
#include "nmt_example/inference/line_results.hpp"
#include "nmt_example/inference/model_scorer.hpp"

namespace nmt {
namespace {

struct Pair {
  std::size_t number;
  std::vector<std::int32_t> source, target;              // with </s> if it would be empty; without
  std::vector<std::int32_t> source_words, target_words;  // to be aligned
};

/// Pairs, time-major; see BatchView.
struct PairBatch {
  explicit PairBatch(std::span<const Pair> pairs) : sentences(pairs.size()) {
    for (const Pair& pair : pairs) {
      source_steps = std::max(source_steps, pair.source.size());
      target_steps = std::max(target_steps, pair.target.size() + 1);
    }
    source.assign(source_steps * sentences, Vocabulary::eos_id);
    target_in.assign(target_steps * sentences, Vocabulary::eos_id);
    target_out = target_in;
    for (std::size_t b = 0; b < sentences; ++b) {
      const Pair& pair = pairs[b];
      for (std::size_t t = 0; t < pair.source.size(); ++t) source[t * sentences + b] = pair.source[t];
      target_in[b] = Vocabulary::bos_id;
      for (std::size_t t = 0; t < pair.target.size(); ++t) {
        target_out[t * sentences + b] = target_in[(t + 1) * sentences + b] = pair.target[t];
      }
      source_lengths.push_back(static_cast<std::int32_t>(pair.source.size()));
      target_lengths.push_back(static_cast<std::int32_t>(pair.target.size() + 1));
      samples.push_back(static_cast<std::int32_t>(b));
    }
  }

  [[nodiscard]] BatchView view() const {
    return {.sentences = static_cast<std::int64_t>(sentences),
            .source_steps = static_cast<std::int64_t>(source_steps),
            .target_steps = static_cast<std::int64_t>(target_steps),
            .source = source,
            .source_lengths = source_lengths,
            .target_in = target_in,
            .target_out = target_out,
            .target_lengths = target_lengths,
            .samples = samples};
  }

  std::size_t sentences, source_steps = 0, target_steps = 0;
  std::vector<std::int32_t> source, source_lengths, target_in, target_out, target_lengths, samples;
};

std::vector<std::string> align(SearchModel& search, const BatchView& batch, std::span<const Pair> pairs) {
  std::vector<TranslationToAlign> translations;
  for (std::size_t b = 0; b < pairs.size(); ++b)
    translations.push_back({b, pairs[b].target, pairs[b].target_words, pairs[b].source_words});
  search.start(batch);
  ModelScorer scorer(std::span(&search, 1));
  return align(scorer, translations);
}

}  // namespace

std::vector<PairScore> PairScorer::score(ddl::Context& context, std::span<const std::string> sources,
                                         std::span<const std::string> targets, std::size_t before) const {
  std::vector<double> results(2 * sources.size());
  std::string alignments;  // of this rank's pairs
  context.on_all_ranks("score translations", [&] {
    std::vector<Pair> pairs;
    std::vector<std::string> alignment(sources.size());
    SearchModel search(model_, 1);
    for (auto i = static_cast<std::size_t>(context.rank()); i < sources.size();
         i += static_cast<std::size_t>(context.size())) {
      pairs.push_back({i, source_.encode(sources[i]), target_.encode(targets[i]), {}, {}});
      if (aligns_) {
        pairs.back().source_words = source_.word_numbers(sources[i]);
        pairs.back().target_words = target_.word_numbers(targets[i]);
      }
      if (pairs.back().source.empty()) pairs.back().source.push_back(Vocabulary::eos_id);
    }
    std::ranges::stable_sort(pairs, std::ranges::greater(),
                             [](const Pair& pair) { return pair.source.size() + pair.target.size(); });
    for (std::size_t begin = 0, count = 0; begin < pairs.size(); begin += count) {
      count = std::min(static_cast<std::size_t>(batch_size_), pairs.size() - begin);
      PairBatch batch{std::span<const Pair>(pairs).subspan(begin, count)};
      while (model_.evaluation_bytes(batch.view()) > largest_workspace) {
        if (count == 1) {
          throw ddl::Error(
              ddl::ErrorCode::unsupported,
              fmt::format("line {} has {} and {} words or pieces; scoring it needs {:.1f} GB of working "
                          "memory, expected at most {:.1f} GB. Split the line.",
                          before + pairs[begin].number + 1, pairs[begin].source.size(),
                          pairs[begin].target.size(),
                          static_cast<double>(model_.evaluation_bytes(batch.view())) / 1e9,
                          static_cast<double>(largest_workspace) / 1e9));
        }
        count = (count + 1) / 2;
        batch = PairBatch{std::span<const Pair>(pairs).subspan(begin, count)};
      }
      const std::vector<double> losses = model_.sentence_losses(batch.view());
      for (std::size_t b = 0; b < count; ++b) {
        results[2 * pairs[begin + b].number] = -losses[b];
        results[2 * pairs[begin + b].number + 1] = static_cast<double>(pairs[begin + b].target.size() + 1);
      }
      if (!aligns_) continue;
      const auto part = std::span<const Pair>(pairs).subspan(begin, count);
      const std::vector<std::string> found = align(search, batch.view(), part);
      for (std::size_t b = 0; b < count; ++b) alignment[part[b].number] = found[b];
    }
    for (auto i = static_cast<std::size_t>(context.rank()); aligns_ && i < sources.size();
         i += static_cast<std::size_t>(context.size()))
      alignments += alignment[i] + '\n';
  });
  context.communicator().all_reduce(std::span(results));  // the others' are zero
  std::vector<PairScore> scores;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    scores.push_back({results[2 * i], static_cast<std::int64_t>(results[2 * i + 1])});
  }
  if (!aligns_) return scores;
  std::vector<std::string> all = results_of_ranks(context, alignments, sources.size());
  for (std::size_t i = 0; i < all.size(); ++i) scores[i].alignment = std::move(all[i]);
  return scores;
}

}  // namespace nmt
