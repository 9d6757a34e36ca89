#pragma once

#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/inference/translator.hpp"
#include "nmt_example/metrics/bleu.hpp"
#include "nmt_example/model/model.hpp"

namespace nmt {

/// What the model reads of a batch.
BatchView view_of(const Batch& batch);

/// Mean cross-entropy per target token over a data set, shared out among the ranks. Collective.
double mean_loss(ddl::Context& context, Model& model, const Dataset& dataset);

struct TextScore {
  BleuScore bleu;
  double exact = 0;  ///< Share of translations equal to the reference.
  std::vector<std::string> translations;
};
/// Translates the source side, shared out among the ranks, and compares. Collective.
TextScore score_text(ddl::Context& context, Translator& translator, const ParallelText& text);

}  // namespace nmt
