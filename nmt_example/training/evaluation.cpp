#include "nmt_example/training/evaluation.hpp"

#include <algorithm>
#include <numeric>

namespace nmt {

BatchView view_of(const Batch& batch) {
  return {.sentences = static_cast<std::int64_t>(batch.size()),
          .source_steps = static_cast<std::int64_t>(batch.source_steps),
          .target_steps = static_cast<std::int64_t>(batch.target_steps),
          .source = batch.source,
          .source_lengths = batch.source_lengths,
          .target_in = batch.target_in,
          .target_out = batch.target_out,
          .target_lengths = batch.target_lengths,
          .samples = batch.samples};
}

double mean_loss(ddl::Context& context, Model& model, const Dataset& dataset) {
  std::vector<std::size_t> order(dataset.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::vector<std::uint32_t> lengths = dataset.lengths();
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  std::vector<std::size_t> mine;
  for (auto i = static_cast<std::size_t>(context.rank()); i < order.size();
       i += static_cast<std::size_t>(context.size())) {
    mine.push_back(order[i]);
  }
  double sums[2] = {0, 0};
  Batch batch;
  const auto limit = static_cast<std::size_t>(model.limits().sentences);
  context.on_all_ranks("compute the dev perplexity", [&] {
    for (std::size_t begin = 0, end = 0; begin < mine.size(); begin = end) {
      std::size_t source = 0, target = 0;
      for (end = begin; end < std::min(begin + limit, mine.size()); ++end) {
        source = std::max(source, dataset.source(mine[end]).size());
        target = std::max(target, dataset.target(mine[end]).size() + 1);
        if (end > begin && !model.fits(static_cast<std::int64_t>(end + 1 - begin),
                                       static_cast<std::int64_t>(source), static_cast<std::int64_t>(target)))
          break;
      }
      fill_batch(dataset, std::span(mine).subspan(begin, end - begin), batch);
      const BatchLoss loss = model.evaluate(view_of(batch));
      sums[0] += loss.negative_log_likelihood;
      sums[1] += static_cast<double>(loss.target_tokens);
    }
  });
  context.communicator().all_reduce(std::span(sums));
  return sums[0] / sums[1];
}

TextScores score_text(ddl::Context& context, Translator& translator, const ParallelText& text,
                      std::span<const Metric* const> metrics) {
  TextScores result;
  result.translations = translator.translate(context, text.source);
  for (const Metric* metric : metrics)
    result.scores.push_back(metric->score(result.translations, text.target));
  return result;
}

}  // namespace nmt
