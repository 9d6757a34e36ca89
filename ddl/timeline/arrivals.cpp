#include "ddl/timeline/arrivals.hpp"

#include <algorithm>
#include <limits>

namespace ddl {

MostDelayed most_delayed(std::span<const Arrivals> ranks) {
  struct Delay {
    std::size_t last_in = 0;
    double behind = 0;
    double waited = 0;
  };
  MostDelayed result;
  if (ranks.size() < 2) return result;
  std::vector<Delay> delays(ranks.size());
  result.collectives = ranks.front().size();
  for (std::size_t i = 0; i < result.collectives; ++i) {
    std::size_t last = 0;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      if (ranks[rank][i] > ranks[last][i]) last = rank;
    }
    std::int64_t before = std::numeric_limits<std::int64_t>::min();
    double waited = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == last) continue;
      before = std::max(before, ranks[rank][i]);
      waited += static_cast<double>(ranks[last][i] - ranks[rank][i]);
    }
    if (before == ranks[last][i]) continue;
    ++delays[last].last_in;
    delays[last].behind += static_cast<double>(ranks[last][i] - before);
    delays[last].waited += waited;
  }
  const auto most = std::ranges::max_element(delays, {}, &Delay::behind);
  if (most->last_in == 0) return result;
  const auto count = static_cast<double>(most->last_in);
  result.rank = static_cast<int>(most - delays.begin());
  result.last_in = most->last_in;
  result.behind = most->behind / count;
  result.waited = most->waited / count;
  return result;
}

}  // namespace ddl
