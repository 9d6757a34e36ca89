#pragma once

#include <memory>

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

}  // namespace nmt
