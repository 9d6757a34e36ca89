#include "topology/planner/phase_profile.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "topology/plan/algorithms.hpp"

namespace ddl::topology {

ResourceClasses::ResourceClasses(std::size_t resources)
    : class_of_(resources, 0), sizes_{static_cast<std::uint32_t>(resources)}, parents_{0}, loaded_(1) {}

std::size_t ResourceClasses::add(std::span<const Load> loads) {
  // Resources of one class with one value, in the order in which groups first occur.
  struct Group {
    std::uint32_t of;
    float value;
    std::uint32_t next;  // group of the same class
    std::uint32_t size = 0;
    std::uint32_t becomes = 0;
  };
  std::vector<Group> groups;
  std::vector<std::uint32_t> group_of(loads.size());
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const auto& [resource, value] = loads[i];
    auto& [first, count] = loaded_[class_of_[as_index(resource)]];
    std::uint32_t group = first;
    while (group != none && groups[group].value != value) group = groups[group].next;
    if (group == none) {
      group = static_cast<std::uint32_t>(groups.size());
      groups.push_back({class_of_[as_index(resource)], value, first});
      first = group;
    }
    group_of[i] = group;
    ++groups[group].size;
    ++count;
  }
  Column column;
  // A search in many loads would cost more than the zeros of the others.
  const bool is_dense = groups.size() > classes() / 8;
  for (Group& group : groups) {
    // If every resource of a class is loaded, the first value keeps the class.
    if (loaded_[group.of].count == sizes_[group.of]) {
      loaded_[group.of].count = 0;
      group.becomes = group.of;
    } else {
      group.becomes = static_cast<std::uint32_t>(sizes_.size());
      sizes_.push_back(0);
      parents_.push_back(group.of);
      loaded_.push_back({});
    }
    if (!is_dense) column.loads.emplace_back(group.becomes, group.value);
  }
  for (const Group& group : groups) {
    loaded_[group.of] = {};
    if (group.becomes == group.of) continue;
    sizes_[group.becomes] = group.size;
    sizes_[group.of] -= group.size;
  }
  for (std::size_t i = 0; i < loads.size(); ++i) {
    class_of_[as_index(loads[i].resource)] = groups[group_of[i]].becomes;
  }
  column.classes = static_cast<std::uint32_t>(classes());
  if (is_dense) {
    column.all.resize(classes(), 0);
    for (const Group& group : groups) column.all[group.becomes] = group.value;
  } else {
    std::ranges::sort(column.loads);
  }
  columns_.push_back(std::move(column));
  return columns_.size() - 1;
}

std::span<const float> ResourceClasses::column(std::size_t index) {
  auto& [known, loads, all] = columns_[index];
  if (all.empty()) {
    all.assign(known, 0);
    for (const auto& [of_class, value] : loads) all[of_class] = value;
  }
  while (all.size() < classes()) all.push_back(all[parents_[all.size()]]);
  return all;
}

float ResourceClasses::load(std::size_t index, std::uint32_t of_class) const {
  const auto& [known, loads, all] = columns_[index];
  while (of_class >= std::max<std::size_t>(known, all.size())) of_class = parents_[of_class];
  if (!all.empty()) return all[of_class];
  const auto found = std::ranges::lower_bound(loads, of_class, {}, &std::pair<std::uint32_t, float>::first);
  return found != loads.end() && found->first == of_class ? found->second : 0;
}

std::vector<PatternRound> pattern_of(Collective collective, Algorithm algorithm, PhaseKind kind, int size,
                                     bool in_turn, bool apart) {
  const GroupPattern pattern(collective, algorithm, kind, size, apart);
  const bool adds_in_scratch = kind == PhaseKind::all_reduce;
  const int repeat = pattern.is_repeated() ? pattern.rounds() : 1;
  std::vector<PatternRound> rounds;
  std::vector<int> hops(as_index(size), 0);     // by member: on the path of its data
  std::vector<int> senders(as_index(size), 0);  // by receiver, in one round
  std::vector<std::pair<int, int>> arrivals;    // receivers and hops, in one round
  std::vector<Message> sent;
  for (int now = 0; now < pattern.rounds(); now += repeat) {
    PatternRound round;
    round.repeat = repeat;
    const auto [first, end, step] = pattern.senders(now);
    for (int member = first; member < end; member += step) {
      pattern.sends(now, member, sent);
      for (const Message& message : sent) {
        round.edges.push_back({member, message.peer});
        round.share = static_cast<double>(message.last - message.first) / pattern.pieces();
      }
    }
    int most = 0;  // senders to one receiver
    arrivals.clear();
    for (const PatternEdge& edge : round.edges) {
      arrivals.emplace_back(edge.to, hops[as_index(edge.from)] + 1);
      most = std::max(most, ++senders[as_index(edge.to)]);
    }
    for (const auto& [to, way] : arrivals) {
      senders[as_index(to)] = 0;
      hops[as_index(to)] = std::max(hops[as_index(to)], way);
    }
    if (adds_in_scratch) {
      // In turn, one pass, and a copy of the sum that the core still caches. Else all but the first member
      // also copy the sum.
      round.reduced = in_turn ? 1 : size;
    } else if (pattern.reduces()) {
      round.reduced = (in_turn ? 1 : most) * round.share;
    }
    round.uses_scratch = adds_in_scratch || (pattern.reduces() && most > 1 && !in_turn);
    rounds.push_back(std::move(round));
  }
  if (pattern.reduces() || rounds.empty()) return rounds;
  // Members send data on as soon as they have it, so latency counts for each hop of the longest path.
  const double longest = *std::ranges::max_element(hops);
  for (PatternRound& round : rounds) round.latency = longest / static_cast<double>(rounds.size());
  return rounds;
}

namespace {

/// Only long chains have more rounds than this. Their rounds cost about the same, so the mean stands for all.
constexpr std::size_t most_rounds = 24;

/// The part of the group's range that a message along an edge carries.
double share_of(const ProfiledGroup& group, const PatternRound& round, const PatternEdge& edge,
                Algorithm algorithm, PhaseKind kind) {
  if (group.shares.empty()) return round.share;
  const bool gathers = kind == PhaseKind::all_gather;
  const auto left_with = [&](int member) { return group.shares[as_index(member)]; };
  const AlgorithmTraits& traits = traits_of(algorithm);
  if (traits.is_direct) return left_with(gathers ? edge.from : edge.to);
  if (traits.is_staged) {
    // The shares of all members that agree with one end in the digits exchanged so far.
    const int stride = static_cast<int>(std::lround(1 / round.share));
    double share = 0;
    for (int member = (gathers ? edge.from : edge.to) % stride; member < static_cast<int>(group.ranks.size());
         member += stride) {
      share += left_with(member);
    }
    return share;
  }
  // The ring carries everything but what the sender is left with, or what the receiver began with.
  return (1 - left_with(gathers ? edge.to : edge.from)) / round.repeat;
}

}  // namespace

PhaseProfile PhaseProfile::reversed() const {
  PhaseProfile result = *this;
  std::ranges::reverse(result.rounds);
  for (ProfileRound& round : result.rounds) {
    round.local = 0;
    round.uses_scratch = false;
    round.column = round.column_without;
  }
  result.total_column = result.total_without;
  return result;
}

Profiler::Profiler(const Topology& topology, const Placement& placement, const CostModel& cost,
                   PlannerRoutes& routes)
    : routes_(&routes),
      network_message_us_(cost.cpu_network_message),
      messages_(routes.resources(), 0),
      classes_(routes.resources()),
      load_(routes.resources(), 0),
      total_(routes.resources(), 0),
      total_without_(routes.resources(), 0),
      is_reducing_(placement.size(), false),
      sends_(placement.size(), 0) {
  for (const int device : placement) {
    const int node = topology.node_of_device(device);
    reduction_us_ = std::max(reduction_us_, cost.reduction_us(topology.node(node).kind, 1));
    const int link = core_link(topology, node);
    core_of_.push_back(link < 0 ? -1 : 2 * link);
    has_cores_ |= link >= 0;
  }
}

void Profiler::add_load(Resource resource, double share) {
  double& load = load_[as_index(resource)];
  if (load == 0) touched_.push_back(resource);
  load += share * routes_->us_per_byte(resource);
}

/// Adds the current loads of `scale` rounds to `totals`.
void Profiler::add_to(std::vector<double>& totals, double scale) {
  for (const Resource resource : touched_) {
    double& total = totals[as_index(resource)];
    if (total == 0) total_touched_.push_back(resource);
    total += scale * load_[as_index(resource)];
  }
}

/// Adds a column of the current loads.
std::size_t Profiler::add_column() {
  std::vector<Load> loads;
  loads.reserve(touched_.size());
  for (const Resource resource : touched_) {
    loads.push_back({resource, static_cast<float>(load_[as_index(resource)])});
  }
  return classes_.add(loads);
}

/// Adds the load of the reductions that a group's receivers do.
void Profiler::add_reductions(const ProfiledGroup& group, const PatternRound& round, double share) {
  for (const PatternEdge& edge : round.edges) {
    const int rank = group.ranks[as_index(edge.to)];
    const Resource core = core_of_[as_index(rank)];
    if (core < 0 || is_reducing_[as_index(rank)]) continue;
    is_reducing_[as_index(rank)] = true;
    double& load = load_[as_index(core)];
    if (load == 0) touched_.push_back(core);
    load += share * reduction_us_;
  }
  for (const PatternEdge& edge : round.edges) is_reducing_[as_index(group.ranks[as_index(edge.to)])] = false;
}

std::vector<Load> Profiler::take_total(std::vector<double>& total) {
  std::vector<Load> result;
  for (const Resource resource : total_touched_) {
    const double load = std::exchange(total[as_index(resource)], 0);
    if (load > 0) result.push_back({resource, static_cast<float>(load)});
  }
  return result;
}

PhaseProfile Profiler::make(Collective collective, Algorithm algorithm, PhaseKind kind, Way way,
                            const ProfiledGroups& groups) {
  PhaseProfile profile;
  // By group size.
  std::map<int, std::vector<PatternRound>> patterns;
  std::size_t rounds = 0;
  int most_repeats = 1;
  groups.for_each([&](const ProfiledGroup& group) {
    const int size = static_cast<int>(group.ranks.size());
    if (patterns.contains(size)) return;
    auto pattern = pattern_of(collective, algorithm, kind, size, way.in_turn, way.apart);
    // The sender rounds to the wire, and the receiver widens.
    for (PatternRound& round : pattern) round.reduced += way.wire_share < 1 ? round.share : 0;
    rounds = std::max(rounds, pattern.size());
    if (!pattern.empty()) most_repeats = std::max(most_repeats, pattern.front().repeat);
    patterns.emplace(size, std::move(pattern));
  });
  profile.returns = !has_root(collective) && !traits_of(algorithm).is_tree;

  // A long chain's rounds get one column together.
  const bool is_long = rounds > most_rounds;
  int round_count = 0;
  const auto for_each_pattern = [&](std::size_t round, const auto& visit) {
    groups.for_each([&](const ProfiledGroup& group) {
      const auto& pattern = patterns.at(static_cast<int>(group.ranks.size()));
      if (round < pattern.size()) visit(group, pattern[round]);
    });
  };
  const auto rank_at = [](const ProfiledGroup& group, int index) { return group.ranks[as_index(index)]; };
  // In memory, half of the bytes count if data is reduced while it is read, or comes back to its sender.
  const bool is_lent =
      collective == Collective::all_reduce && (kind == PhaseKind::all_gather || kind == PhaseKind::broadcast);
  const bool is_half = is_lent || kind == PhaseKind::reduce_scatter || kind == PhaseKind::reduce ||
                       kind == PhaseKind::all_reduce;
  const auto part_moved = [&](const PlannedRoute& route) { return route.in_memory && is_half ? 0.5 : 1.0; };
  for (std::size_t i = 0; i < rounds; ++i) {
    ProfileRound round;
    // Smaller rings have fewer rounds; their load counts as spread over all rounds.
    round.repeat = most_repeats;
    double reduced = 0;
    for_each_pattern(i, [&](const ProfiledGroup& group, const PatternRound& now) {
      round.uses_scratch |= now.uses_scratch;
      const double part = static_cast<double>(now.repeat) / most_repeats;
      reduced = std::max(reduced, now.reduced * group.weight * part);
      profile.messages += static_cast<double>(now.edges.size()) * now.repeat;
      for (const PatternEdge& edge : now.edges) {
        const int from = rank_at(group, edge.from);
        const int to = rank_at(group, edge.to);
        const PlannedRoute route = routes_->between(from, to);
        const bool crosses = routes_->host_of(from) != routes_->host_of(to);
        const double share = share_of(group, now, edge, algorithm, kind) * group.weight * part;
        const double moved = share * part_moved(route) * (crosses ? way.wire_share : 1);
        for (const Resource resource : route.resources) {
          add_load(resource, moved);
          if (!route.is_tcp || network_message_us_ == 0 || !routes_->is_network(resource)) continue;
          int& messages = messages_[as_index(resource)];
          if (messages++ == 0) with_messages_.push_back(resource);
          round.busy = std::max(round.busy, messages * part * network_message_us_);
        }
        round.latency = std::max(round.latency, now.latency * route.latency);
        round.alone = std::max(round.alone, moved * route.us_per_byte);
        int& sends = sends_[as_index(from)];
        round.sends = std::max(round.sends, static_cast<double>(++sends));
      }
    });
    for (const Resource resource : with_messages_) messages_[as_index(resource)] = 0;
    with_messages_.clear();
    for (const Resource resource : touched_) {
      round.us_per_byte = std::max(round.us_per_byte, load_[as_index(resource)]);
    }
    const bool is_ring = traits_of(algorithm).is_ring && kind != PhaseKind::broadcast;
    if (is_ring) {
      round.latency = 0;
      round.slowest_edge = round.us_per_byte;
      round.us_per_byte = 0;
      for_each_pattern(i, [&](const ProfiledGroup& group, const PatternRound& now) {
        double latency = 0;
        double us_per_byte = 0;
        for (const PatternEdge& edge : now.edges) {
          const PlannedRoute route = routes_->between(rank_at(group, edge.from), rank_at(group, edge.to));
          double slowest = 0;
          for (const Resource resource : route.resources) {
            slowest = std::max(slowest, load_[as_index(resource)]);
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
    groups.for_each([&](const ProfiledGroup& group) {
      for (const int rank : group.ranks) sends_[as_index(rank)] = 0;
    });
    round.local = reduced * way.orders * reduction_us_;
    if (has_cores_) {
      add_to(total_without_, round.repeat);
      if (!is_long) round.column_without = add_column();
    }
    if (has_cores_ && reduced > 0) {
      for_each_pattern(i, [&](const ProfiledGroup& group, const PatternRound& now) {
        const double part = static_cast<double>(now.repeat) / most_repeats;
        add_reductions(group, now, now.reduced * group.weight * part);
      });
    }
    add_to(total_, round.repeat);
    if (!is_long) round.column = add_column();
    for (const Resource resource : touched_) load_[as_index(resource)] = 0;
    touched_.clear();
    if (!has_cores_) round.column_without = round.column;
    round_count += round.repeat;
    profile.rounds.push_back(round);
  }
  std::vector<Load> total = take_total(total_);
  profile.total_column = classes_.add(total);
  profile.total_without = has_cores_ ? classes_.add(take_total(total_without_)) : profile.total_column;
  total_touched_.clear();

  if (is_long) {
    ProfileRound mean = profile.rounds.front();
    const auto count = static_cast<double>(profile.rounds.size());
    mean.latency = mean.us_per_byte = 0;
    mean.busy = 0;
    for (const ProfileRound& round : profile.rounds) {
      mean.busy += round.busy / count;
      mean.latency += round.latency / count;
      mean.us_per_byte += round.us_per_byte / count;
    }
    for (Load& load : total) load.us_per_byte /= static_cast<float>(count);
    mean.repeat = round_count;
    mean.column = mean.column_without = classes_.add(total);
    profile.rounds = {mean};
  }
  return profile;
}

}  // namespace ddl::topology
