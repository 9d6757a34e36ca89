#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

/// What messages call a plan and its phases.
struct PlanNames {
  std::string plan;                 ///< One line.
  std::vector<std::string> phases;  ///< By `Step::phase`.
};

/// How a rank reaches the others of the job.
struct Ways {
  std::vector<bool> shares_memory;  ///< By rank.
  bool mpi_alone = false;           ///< Everything goes through MPI.
};

/// A program made ready to be run any number of times by an `Engine`. Immutable; any thread.
class PreparedProgram {
 public:
  /// For buffers of `count` elements of `element_bytes`. `ranks`: the rank in the job of each of the program's
  /// peers. Throws `internal` for a program that cannot be run: an address outside buffer and scratch memory, a
  /// range that is partly in either, a step without a peer.
  PreparedProgram(topology::Program program, std::size_t count, std::size_t element_bytes,
                  std::span<const int> ranks, const Ways& ways,
                  std::shared_ptr<const PlanNames> names = nullptr);
  // More to come: this is all that communicators need.
};

}  // namespace ddl::collectives
