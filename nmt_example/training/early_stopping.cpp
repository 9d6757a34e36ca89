#include "nmt_example/training/early_stopping.hpp"

#include <fmt/format.h>

#include <cmath>

#include "nmt_example/metrics/metric.hpp"

namespace nmt {
namespace {

bool is_better(std::string_view metric, double score, double best) {
  return metric == dev_perplexity ? score < best : metrics_of(metric).front()->is_better(score, best);
}

}  // namespace

void EarlyStopping::note(std::string_view name, double score, std::uint64_t now) {
  if (metric != name) *this = {std::string(name), std::nan(""), now, 0};
  if (std::isfinite(score) && (std::isnan(best) || is_better(metric, score, best))) {
    best = score;
    step = now;
    evaluations = 0;
  } else {
    ++evaluations;
  }
}

std::string EarlyStopping::reason(const Options& options) const {
  if (options.early_stopping.empty() || metric != options.early_stopping || evaluations < options.patience)
    return "";
  return fmt::format("early stopping: {} evaluation{} since step {} gave no better {} than {:.2f}",
                     evaluations, evaluations == 1 ? "" : "s", step, metric, best);
}

}  // namespace nmt
