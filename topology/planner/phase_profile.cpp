#include "topology/planner/phase_profile.hpp"

#include <algorithm>
#include <utility>

#include "topology/planner/pattern.hpp"

namespace ddl::topology {
namespace {

/// Rounds alike in what they cost: a chain's are taken together, each with its part of the whole.
constexpr std::size_t most_rounds = 24;

}  // namespace

PhaseProfile PhaseProfile::reversed() const {
  PhaseProfile result = *this;
  std::ranges::reverse(result.rounds);
  for (ProfileRound& round : result.rounds) {
    round.local = 0;
    round.uses_scratch = false;
  }
  return result;
}

Profiler::Profiler(const Topology& topology, const Placement& placement, const CostModel& cost,
                   PlannerRoutes& routes)
    : routes_(&routes),
      classes_(routes.resources()),
      load_(routes.resources(), 0),
      total_(routes.resources(), 0),
      sends_(placement.size(), 0) {
  for (const int device : placement) {
    const auto node = static_cast<std::size_t>(topology.devices()[static_cast<std::size_t>(device)]);
    reduction_us_ = std::max(reduction_us_, cost.reduction_us(topology.nodes()[node].kind, 1));
  }
}

void Profiler::add_load(Resource resource, double share) {
  double& load = load_[static_cast<std::size_t>(resource)];
  if (load == 0) touched_.push_back(resource);
  load += share * routes_->us_per_byte(resource);
}

/// What was loaded as a column, with the loads of `scale` rounds added to the total.
std::size_t Profiler::take_column(double scale) {
  std::vector<Load> loads;
  loads.reserve(touched_.size());
  for (const Resource resource : touched_) {
    const double load = std::exchange(load_[static_cast<std::size_t>(resource)], 0);
    loads.push_back({resource, static_cast<float>(load)});
    double& total = total_[static_cast<std::size_t>(resource)];
    if (total == 0) total_touched_.push_back(resource);
    total += scale * load;
  }
  touched_.clear();
  return classes_.add(loads);
}

PhaseProfile Profiler::make(Collective collective, Algorithm algorithm, PhaseKind kind,
                            const GroupSource& for_each_group) {
  PhaseProfile profile;
  // Patterns of each group size that occurs.
  std::map<int, std::vector<PatternRound>> patterns;
  std::size_t rounds = 0;
  int most_repeats = 1;
  for_each_group([&](const ProfiledGroup& group) {
    const int size = static_cast<int>(group.ranks.size());
    if (patterns.contains(size)) return;
    auto pattern = pattern_of(collective, algorithm, kind, size);
    rounds = std::max(rounds, pattern.size());
    if (!pattern.empty()) most_repeats = std::max(most_repeats, pattern.front().repeat);
    patterns.emplace(size, std::move(pattern));
  });
  profile.returns = collective == Collective::all_reduce && algorithm != Algorithm::tree;

  const auto rank_at = [](const ProfiledGroup& group, int index) {
    return group.ranks[static_cast<std::size_t>(index)];
  };
  for (std::size_t i = 0; i < rounds; ++i) {
    ProfileRound round;
    // Smaller rings have fewer rounds: what they carry counts as if spread over all.
    round.repeat = most_repeats;
    double reduced = 0;
    for_each_group([&](const ProfiledGroup& group) {
      const auto& pattern = patterns.at(static_cast<int>(group.ranks.size()));
      if (i >= pattern.size()) return;
      const PatternRound& now = pattern[i];
      round.uses_scratch |= now.uses_scratch;
      const double part = static_cast<double>(now.repeat) / most_repeats;
      reduced = std::max(reduced, now.reduced * group.weight * part);
      const double share = now.share * group.weight * part;
      profile.messages += static_cast<double>(now.edges.size()) * now.repeat;
      for (const PatternEdge& edge : now.edges) {
        const int from = rank_at(group, edge.from);
        const PlannedRoute route = routes_->between(from, rank_at(group, edge.to));
        for (const Resource resource : route.resources) add_load(resource, share);
        round.latency = std::max(round.latency, now.latency * route.latency);
        round.alone = std::max(round.alone, share * route.us_per_byte);
        int& sends = sends_[static_cast<std::size_t>(from)];
        round.sends = std::max(round.sends, static_cast<double>(++sends));
      }
    });
    for (const Resource resource : touched_) {
      round.us_per_byte = std::max(round.us_per_byte, load_[static_cast<std::size_t>(resource)]);
    }
    const bool is_ring = algorithm == Algorithm::ring && kind != PhaseKind::broadcast;
    if (is_ring) {
      round.latency = 0;
      round.slowest_edge = round.us_per_byte;
      round.us_per_byte = 0;
      for_each_group([&](const ProfiledGroup& group) {
        const auto& pattern = patterns.at(static_cast<int>(group.ranks.size()));
        if (i >= pattern.size()) return;
        const PatternRound& now = pattern[i];
        double latency = 0;
        double us_per_byte = 0;
        for (const PatternEdge& edge : now.edges) {
          const PlannedRoute route = routes_->between(rank_at(group, edge.from), rank_at(group, edge.to));
          double slowest = 0;
          for (const Resource resource : route.resources) {
            slowest = std::max(slowest, load_[static_cast<std::size_t>(resource)]);
          }
          latency += route.latency;
          us_per_byte += slowest;
          if (slowest >= round.slowest_edge) {
            round.slowest_latency = std::max(round.slowest_latency, route.latency);
          }
        }
        const auto edges = static_cast<double>(now.edges.size());
        round.latency = std::max(round.latency, latency / edges * now.repeat / most_repeats);
        round.us_per_byte = std::max(round.us_per_byte, us_per_byte / edges);
      });
    }
    for_each_group([&](const ProfiledGroup& group) {
      for (const int rank : group.ranks) sends_[static_cast<std::size_t>(rank)] = 0;
    });
    round.local = reduced * reduction_us_;
    round.column = take_column(round.repeat);
    profile.round_count += round.repeat;
    profile.rounds.push_back(round);
  }
  std::vector<Load> total;
  for (const Resource resource : total_touched_) {
    total.push_back(
        {resource, static_cast<float>(std::exchange(total_[static_cast<std::size_t>(resource)], 0))});
  }
  total_touched_.clear();
  profile.total_column = classes_.add(total);

  if (profile.rounds.size() > most_rounds) {
    // A long chain.
    ProfileRound mean = profile.rounds.front();
    const auto count = static_cast<double>(profile.rounds.size());
    mean.latency = mean.us_per_byte = 0;
    for (const ProfileRound& round : profile.rounds) {
      mean.latency += round.latency / count;
      mean.us_per_byte += round.us_per_byte / count;
    }
    for (Load& load : total) load.us_per_byte /= static_cast<float>(count);
    mean.repeat = profile.round_count;
    mean.column = classes_.add(total);
    profile.rounds = {mean};
  }
  return profile;
}

}  // namespace ddl::topology
