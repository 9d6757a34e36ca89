#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddl {

/// When one rank came to each of a number of collectives, in nanoseconds of the job's time.
using Arrivals = std::vector<std::int64_t>;

/// Who made the others wait.
struct MostDelayed {
  int rank = 0;
  std::size_t last_in = 0;      ///< Collectives to which it came last.
  std::size_t collectives = 0;  ///< Of so many.
  double behind = 0;            ///< Nanoseconds after the one before it, on average where it was last.
  double waited = 0;            ///< Nanoseconds that the others waited for it together, on average there.
};

/// Of all ranks' arrivals, by rank, as many each: the rank without which the collectives would have begun the
/// most earlier. Ranks that come at one time are not late. Rank 0 in 0 of them if nobody was.
MostDelayed most_delayed(std::span<const Arrivals> ranks);

}  // namespace ddl
