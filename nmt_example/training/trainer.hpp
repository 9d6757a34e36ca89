#pragma once

#include <iostream>

#include "ddl/context.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/shape.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// The model that the options describe, over vocabularies of the given sizes.
ModelShape model_shape(const Options& options, std::size_t source_vocabulary, std::size_t target_vocabulary);

/// Threads of this rank: --threads, or the host's processors over its ranks.
int threads_per_rank(const ddl::Context& context, const Options& options);

/// Where --device says: each rank's CUDA device is its number on the host modulo the devices there, so that
/// more ranks than devices share them. Collective; errors are agreed.
std::unique_ptr<Backend> make_backend(ddl::Context& context, const Options& options);

/// Trains as the options say, from the newest checkpoint of --out_dir if there is one: prints the
/// model's table, progress, dev perplexity and BLEU, saves checkpoints, and scores the test set at the
/// end. Collective over all ranks. Rank 0 writes to `out`; on a terminal (standard output alone is taken
/// for one) with a progress bar.
void train(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out = std::cout);

}  // namespace nmt
