#include "collectives/engine/core_spreading.hpp"

#include <algorithm>

namespace ddl::collectives {
namespace {

constexpr auto shortest_stay = std::chrono::milliseconds(5);
/// With more members than that a core, each core always has some, and counting them costs more than it gains.
constexpr std::size_t most_members_per_core = 4;

}  // namespace

CoreSpreading::CoreSpreading() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) allowed_.push_back(core);
  }
}

int CoreSpreading::better_core(const std::vector<int>& allowed, const std::vector<int>& cores,
                               std::size_t self) noexcept {
  const int own = cores[self];
  const auto members_on = [&](int core) { return std::ranges::count(cores, core); };
  const bool later_one_is_here =
      std::find(cores.begin() + static_cast<std::ptrdiff_t>(self) + 1, cores.end(), own) != cores.end();
  if (own < 0 || later_one_is_here) return -1;
  int best = own;
  for (const int core : allowed) {
    if (members_on(core) < members_on(best)) best = core;
  }
  return members_on(own) - members_on(best) >= 2 ? best : -1;
}

void CoreSpreading::spread(const std::vector<int>& cores, std::size_t self) noexcept {
  if (allowed_.size() < 2 || cores.size() > most_members_per_core * allowed_.size()) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + shortest_stay;
  const int core = better_core(allowed_, cores, self);
  cpu_set_t usual;
  if (core < 0 || sched_getaffinity(0, sizeof usual, &usual) != 0 || !CPU_ISSET(core, &usual)) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(core, &there);
  if (sched_setaffinity(0, sizeof there, &there) == 0) sched_setaffinity(0, sizeof usual, &usual);
}

}  // namespace ddl::collectives
