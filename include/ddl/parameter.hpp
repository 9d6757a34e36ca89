#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddl/elements.hpp"

namespace ddl {

/// One tensor of a model on this rank, of any element type: `{"w", weights}` of a span or a vector, or, for a
/// model that is registered once, `{"w", weights, gradient}`. Views: the memory must stay where it is while
/// something uses the parameter.
struct Parameter {
  std::string name;
  Elements values;
  /// As many elements, of a floating type; empty for what is not trained by gradients, such as an optimiser's
  /// moments.
  Elements gradient = {};
  std::size_t row_width = 0;             ///< `Gradient::row_width`.
  std::vector<Elements> summands = {};   ///< `Gradient::summands`.
  std::vector<std::int64_t> shape = {};  ///< In checkpoints; empty: flat.
};

/// A model, registered once: `broadcast_parameters`, `check_same_parameters` and `DriftCheck` take it,
/// `gradients_of` gives a reducer its gradients, and `TrainingState` puts it into checkpoints. What belongs
/// to one rank alone (states of random generators, statistics of its data) is left out by not listing it.
using Model = std::vector<Parameter>;

}  // namespace ddl
