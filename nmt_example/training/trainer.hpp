#pragma once

#include <iostream>

#include "ddl/context.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// Trains as the options say, from the newest checkpoint of --out_dir if there is one: prints the table of
/// the model's parameters, progress, dev perplexity and BLEU, saves checkpoints, and scores the test set at
/// the end. Collective. Rank 0 writes to `out`, with a progress bar if it is a terminal (standard output).
void train(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out = std::cout);

}  // namespace nmt
