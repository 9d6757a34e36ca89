#pragma once

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/options/tuned_flag.hpp"

namespace nmt {

/// A value that is tried, and how good it is.
struct TuningCandidate {
  std::string value;
  std::vector<double> perplexities;  ///< Of the dev set, after each rung; infinity: training diverged.
};

/// Successive halving (Jamieson and Talwalkar 2016), as far as it has come.
struct Tuning {
  std::string flag;
  std::int64_t first_rung = 0;              ///< Steps of the first rung; each other has twice as many.
  std::vector<TuningCandidate> candidates;  ///< In the order of their values on the command line.
  std::string options_json;                 ///< Of all candidates, as far as they do not differ.

  /// How many rungs there are until one candidate is left.
  [[nodiscard]] std::size_t rungs() const;
  /// The step with which a rung ends.
  [[nodiscard]] std::int64_t last_step(std::size_t rung) const { return first_rung << rung; }
  /// The candidates that a rung trains, by their numbers: after each rung, the better half, rounded up, of
  /// those that have not diverged; the first of equal ones.
  [[nodiscard]] std::vector<std::size_t> taking_part(std::size_t rung) const;

  [[nodiscard]] std::string to_json() const;
  /// Throws `corrupt_data`.
  static Tuning from_json(const std::string& json);
};

/// Tries the values of --tune: trains each in a directory of its own in --out_dir, and of those that are left
/// after a rung the better half goes on from its checkpoint. Goes on with what --out_dir has; then the
/// settings must be the same (`mismatch`). The candidates share the encoded text, and the vocabularies unless
/// these are tuned. Those that are left behind keep their logs alone. Returns null if a signal ended it; what
/// was found is then in --out_dir. Prints the progress to `out` on rank 0. Collective.
std::optional<Tuning> tune(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out = std::cout);

}  // namespace nmt
