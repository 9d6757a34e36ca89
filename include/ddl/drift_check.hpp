#pragma once

#include <cstdint>
#include <vector>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/context.hpp"

namespace ddl {

/// Makes sure that all ranks' parameters have the same bits, as they must after the same updates of the same
/// model: -0 is another value than +0, and NaNs are told apart by their payload.
///
/// Just what is listed is compared, in the host's memory. Models for evaluation or inference are left out by
/// not listing them; an optimiser's state may be listed as well.
///
/// Collective; not thread-safe. Costs reading the parameters once, near the speed of memory, and one
/// all-reduce of 16 bytes, so about 2(n-1) alpha; where ranks differ, once more and some broadcasts.
///
/// Errors, the same on every rank: `mismatch`, naming the first parameter that differs and the ranks that
/// differ from rank 0 there. 64-bit hashes are compared: parameters that differ pass once in 2^64 times.
void check_same_parameters(const Context& context, const std::vector<Parameter>& parameters);

/// `check_same_parameters` at every K-th step: what makes ranks drift apart (an update that one of them
/// skips, memory that is overwritten, a random number) is found within K steps, and not by a model that does
/// not learn.
class DriftCheck {
 public:
  /// `every_steps`: K; 0: never. The parameters' memory must outlive this. Collective; throws `mismatch`,
  /// agreed, unless K and the parameters' names and sizes are the same on all ranks.
  DriftCheck(const Context& context, std::vector<Parameter> parameters, std::uint64_t every_steps);

  /// Whether `step` is a multiple of K: for parameters that have to be brought to the host first.
  [[nodiscard]] bool is_due(std::uint64_t step) const noexcept;
  /// Compares if the step is due; whether it was. Every rank calls this for the same steps. Errors as
  /// `check_same_parameters`.
  bool step(std::uint64_t step);

 private:
  Context context_;
  std::vector<Parameter> parameters_;
  std::uint64_t every_steps_;
};

}  // namespace ddl
