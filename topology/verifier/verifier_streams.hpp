#pragma once

#include <string>
#include <vector>

#include "topology/verifier/verifier_steps.hpp"

namespace ddl::topology::verification {

/// Which receive each send meets, and the order of the streams.
struct Streams {
  std::vector<StepId> partner;   ///< Of a send its receive, of a receive its send; else no_step.
  std::vector<StepId> next;      ///< The same rank's next step of the same stream, or no_step.
  std::vector<bool> has_before;  ///< Whether the stream has an earlier step.
  std::string problem;           ///< Of the first send or receive that has no match of its length.
};

/// Peers must be in range. O(S log S).
Streams match_streams(const StepNumbers& steps);

}  // namespace ddl::topology::verification
