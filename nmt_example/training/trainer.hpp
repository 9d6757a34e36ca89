#pragma once

#include <iostream>

#include "ddl/context.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/shape.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// The model that the options describe, over vocabularies of the given sizes.
ModelShape model_shape(const Options& options, std::size_t source_vocabulary, std::size_t target_vocabulary);

/// Threads of this rank: --threads, or the processors that it may use divided by the ranks on its host.
int threads_per_rank(const ddl::Context& context, const Options& options);

/// The backend that --device names. With cuda, a rank's device is its number on the host modulo the number of
/// devices there, so that more ranks than devices share them. Collective; errors are agreed.
std::unique_ptr<Backend> make_backend(ddl::Context& context, const Options& options);

/// The type of activations that --dtype asks for.
inline ddl::DataType activation_type(const Options& options, const Backend& backend) {
  return options.dtype == Dtype::mixed ? backend.narrow_type() : backend.type();
}

/// Trains as the options say, from the newest checkpoint of --out_dir if there is one: prints the table of
/// the model's parameters, progress, dev perplexity and BLEU, saves checkpoints, and scores the test set at
/// the end. Collective. Rank 0 writes to `out`, with a progress bar if it is a terminal (standard output).
void train(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out = std::cout);

}  // namespace nmt
