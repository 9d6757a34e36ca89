#pragma once

#include <vector>

#include "ddl/communicator.hpp"

namespace ddl {

/// Communicators for sums that are made on each host first, then between hosts, a shard each: shard s of a
/// host belongs to its rank with the index s. Hosts of unequal size have as many shards as the smallest
/// has ranks.
struct HostHierarchy {
  /// Collective.
  explicit HostHierarchy(Communicator& all);

  Communicator sums;     ///< Of the host's ranks: from values to shards.
  Communicator results;  ///< Of the host's ranks: from shards to values.
  Communicator across;   ///< Of the ranks of all hosts with this one's index.
  int shards = 1;
  bool even = true;  ///< Whether all hosts have as many ranks.

  [[nodiscard]] int index() const noexcept { return sums.rank(); }
  [[nodiscard]] bool has_shard() const noexcept { return index() < shards; }
};

}  // namespace ddl
