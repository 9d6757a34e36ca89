#pragma once

#include <cstdint>
#include <iostream>
#include <optional>

#include "ddl/context.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/corpus.hpp"

namespace nmt {

/// Trains as the options say, from the newest checkpoint of --out_dir if there is one: prints the table of
/// the model's parameters, progress, dev perplexity and BLEU, saves checkpoints, and scores the test set at
/// the end. Collective. Rank 0 writes to `out`, with a progress bar if it is a terminal (standard output).
void train(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out = std::cout);

/// The same, but ends with the step `last_step` at the latest, with a checkpoint, so that another call goes
/// on from there. Nothing is translated: returns the dev set's perplexity; infinity if training diverged,
/// nothing if a signal ended it. `vocabularies`: of a run that starts; null: made as the options say.
std::optional<double> train_part(ddl::Context& context, const ParsedOptions& parsed, std::int64_t last_step,
                                 const VocabularyPair* vocabularies, std::ostream& out);

}  // namespace nmt
