#pragma once

#include <cstdint>
#include <vector>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/context.hpp"

namespace ddl {

/// Verifies that the `values` of all `parameters` have the same bits on all ranks, as they must after the
/// same updates of the same model. -0 differs from +0, and NaNs differ by their payload.
///
/// Only the listed parameters are compared; they must be in the host's memory. Leave out models for
/// evaluation or inference; an optimiser's state may be listed too.
///
/// Collective; not thread-safe. Cost: one pass over the parameters, near the speed of memory, and one
/// all-reduce of 16 bytes, so about 2(n-1) alpha; if ranks differ, another pass and some broadcasts.
///
/// Throws, the same on every rank, `mismatch` with the first parameter that differs and the ranks whose value
/// is not rank 0's. Compares 64-bit hashes: different parameters pass with a probability of 2^-64.
void check_same_parameters(const Context& context, const std::vector<Parameter>& parameters);

/// Calls `check_same_parameters` in every K-th step. Finds what makes ranks drift apart (an update that one
/// of them skips, memory that is overwritten, a random number) within K steps, long before the model's
/// quality shows it.
class DriftCheck {
 public:
  /// Checks `parameters` every `every_steps` (K) steps; 0: never. Their memory must outlive this object.
  /// Collective. Throws, agreed, `mismatch` unless K and the parameters' names, types and sizes are the same
  /// on all ranks.
  DriftCheck(const Context& context, std::vector<Parameter> parameters, std::uint64_t every_steps);

  /// Whether `step` is a multiple of K. For parameters that must be copied to the host first.
  [[nodiscard]] bool is_due(std::uint64_t step) const noexcept;
  /// Compares the parameters if `step` is due; returns whether it was. Every rank must call it for the same
  /// steps. Throws as `check_same_parameters` does.
  bool step(std::uint64_t step);

 private:
  Context context_;
  std::vector<Parameter> parameters_;
  std::uint64_t every_steps_;
};

}  // namespace ddl
