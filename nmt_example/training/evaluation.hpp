#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/data/encoding.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/model/model.hpp"

namespace nmt {

/// The part of a batch that the model reads.
BatchView view_of(const Batch& batch);

/// Mean cross-entropy per target token over a data set, which is spread over the ranks. Batches
/// are made small enough for the model's training memory; see `Model::evaluate` for longer sentences.
/// Collective.
double mean_loss(ddl::Context& context, Model& model, const Dataset& dataset);

struct TextScores {
  std::vector<MetricScore> scores;  ///< One for each metric.
  std::vector<std::string> translations;
};
/// Translates the source side, spread over the ranks, and compares it with the target side. Collective.
TextScores score_text(ddl::Context& context, Translator& translator, const ParallelText& text,
                      std::span<const Metric* const> metrics);

}  // namespace nmt
