#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddl/elements.hpp"

namespace ddl {

/// One tensor of a model on this rank: `{"w", weights}` with a span or a vector or, with its gradient,
/// `{"w", weights, gradient}`. Holds views: the memory must stay in place while the parameter is used.
struct Parameter {
  std::string name;  ///< For messages and checkpoints; the same on all ranks.
  Elements values;   ///< The parameter itself, of any element type.
  /// Its gradient: as many elements, of a floating type. Empty for tensors that no gradient trains, such as
  /// an optimiser's moments.
  Elements gradient = {};
  std::size_t row_width = 0;             ///< `Gradient::row_width`.
  std::vector<Elements> summands = {};   ///< `Gradient::summands`.
  std::vector<std::int64_t> shape = {};  ///< The shape in checkpoints; empty: one dimension.
};

/// A model, registered once for all uses: `broadcast_parameters`, `check_same_parameters` and `DriftCheck`
/// take it, `gradients_of` makes the list for a `GradientReducer`, and `TrainingState` saves it in
/// checkpoints. Leave out data that belong to one rank (states of random generators, statistics of its data).
using Model = std::vector<Parameter>;

}  // namespace ddl
