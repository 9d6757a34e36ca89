#pragma once

#include <cstdint>

namespace ddl {

/// What a step's reduction ends with on a device, for kernels: the same on all ranks. See `ReducedStep`.
struct DeviceOutcome {
  double weight;         ///< Items of all ranks together.
  double scale;          ///< What makes means of what the gradients hold: 1, unless they are left as sums.
  double norm;           ///< Of the mean gradients.
  std::uint32_t finite;  ///< 1 if all gradients are finite, else 0.
};

}  // namespace ddl
