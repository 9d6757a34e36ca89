#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/communicator.hpp"

namespace ddl {

/// What a reducer's sums depend on beyond its options and the communicator's plans.
struct LearnedBuckets {
  std::uint64_t gradients = 0;  ///< A hash of their names and sizes, and of the options.
  std::size_t bucket_bytes = 0;
  std::vector<std::size_t> order;  ///< Learned; empty: not yet.
  int ranks = 0;
  std::uint64_t plans = 0;  ///< A hash of the plans by which buckets are reduced.

  [[nodiscard]] std::string json() const;
  /// Throws `corrupt_data` for what is no state, and unless the order, if any, is one of `count` gradients.
  static LearnedBuckets parse(std::string_view json, std::size_t count);
};

/// The last registered first.
std::vector<std::size_t> reverse_order(std::size_t gradients);
/// All gradients by the mean over all ranks of each one's place in `own`, the order of those that had values
/// on this rank; others count as last, and of equal ones the last registered comes first. Collective: the
/// same on all ranks.
std::vector<std::size_t> learn_order(Communicator& communicator, std::span<const std::size_t> own,
                                     std::size_t gradients);

/// Of all entries, in their order.
std::uint64_t hash_of_entries(const std::vector<std::string>& entries) noexcept;

}  // namespace ddl
