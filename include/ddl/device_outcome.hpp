#pragma once

#include <cstdint>

namespace ddl {

/// The result of a step's reduction in device memory, for kernels. The same on all ranks. See `ReducedStep`.
struct DeviceOutcome {
  double weight;         ///< Sum of all ranks' weights.
  double scale;          ///< The factor that turns the gradients into means: 1, unless they are left as sums.
  double norm;           ///< Euclidean norm of all mean gradients together.
  std::uint32_t finite;  ///< 1 if all gradients are finite, else 0.
};

}  // namespace ddl
