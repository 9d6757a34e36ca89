#pragma once

#include <cstddef>
#include <string>

#include "ddl/context.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

inline double megabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e6; }

/// What training takes of a rank's memory, in bytes.
struct TrainingMemory {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;    ///< With the moving average of parameters.
  std::size_t activations = 0;  ///< Of the largest batch.

  [[nodiscard]] std::size_t sum() const { return parameters + gradients + optimizer + activations; }
  /// With what the first steps add: copies of parameters, sums of products, buckets, the libraries' own.
  [[nodiscard]] std::size_t needed() const { return sum() + sum() * 3 / 20 + (std::size_t{64} << 20); }
};

/// Of the model that the options describe, trained on the dataset by so many ranks together. `model` has its
/// shape; its limits do not matter.
TrainingMemory training_memory(const Options& options, const Dataset& dataset, const Backend& backend,
                               Model& model, int ranks);

/// Sets --batch_size, or --batch_words where that is given, to the largest with which training needs no more
/// than --workspace or, without, nine tenths of what is free on the host or the device, divided by the ranks
/// there. The same on all ranks, by the one with the least room. Returns a line that says so. Throws
/// `invalid_argument` if none fits. Collective; errors are agreed. On devices it takes the memory of the
/// parameters for the time of the call, as does `check_batch`.
std::string fit_batch(ddl::Context& context, Options& options, const Dataset& dataset, Backend& backend,
                      const ModelShape& shape);

/// Throws `invalid_argument`, with the batch that would fit, if training needs more than --workspace or,
/// without, if its `sum` is more than the host has, or than is free on the device. Collective; errors are
/// agreed.
void check_batch(ddl::Context& context, const Options& options, const Dataset& dataset, Backend& backend,
                 const ModelShape& shape);

}  // namespace nmt
