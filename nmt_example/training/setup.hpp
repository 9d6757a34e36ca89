#pragma once

#include <memory>

#include "ddl/context.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// The model that the options describe, over vocabularies of the given sizes.
ModelShape model_shape(const Options& options, std::size_t source_vocabulary, std::size_t target_vocabulary);

/// The dropout of a training step, whose random numbers are those of `step` of the sampler.
DropoutSettings dropout_settings(const Options& options, std::uint64_t step);

/// Threads of this rank: --threads, or the processors that it may use divided by the ranks on its host.
int threads_per_rank(const ddl::Context& context, const Options& options);

/// The backend that --device names. With cuda, a rank's device is its number on the host modulo the number of
/// devices there, so that more ranks than devices share them. Collective; errors are agreed.
std::unique_ptr<Backend> make_backend(ddl::Context& context, const Options& options);

/// The types that --dtype asks for. Gradients are bf16 where activations are; but neither where micro-batches
/// add to them, which loses what is small, nor where --gradient_wire narrows their sums with error feedback.
/// They are not f16, in which sums over words and ranks would overflow.
ModelTypes model_types(const Options& options, const Backend& backend);
/// Of them, that of activations.
ddl::DataType activation_type(const Options& options, const Backend& backend);

}  // namespace nmt
