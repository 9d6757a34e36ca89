#include "matrix/plan_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

namespace matrix {

using ddl::topology::Algorithm;
using ddl::topology::Carrier;
using ddl::topology::Collective;
using ddl::topology::Decomposition;
using ddl::topology::Mode;
using ddl::topology::Plan;

namespace {

constexpr std::array collectives = {Collective::all_reduce, Collective::reduce_scatter,
                                    Collective::all_gather, Collective::broadcast, Collective::reduce};

std::optional<Algorithm> single_algorithm(Family family) {
  switch (family) {
    case Family::ring:
      return Algorithm::ring;
    case Family::halving_doubling:
      return Algorithm::halving_doubling;
    case Family::two_shot:
      return Algorithm::two_shot;
    case Family::one_shot:
      return Algorithm::one_shot;
    case Family::tree:
      return Algorithm::tree;
    case Family::double_tree:
      return Algorithm::double_tree;
    default:
      return std::nullopt;
  }
}

bool can(Collective collective, Algorithm algorithm) {
  return std::ranges::find(algorithms_of(collective), algorithm) != algorithms_of(collective).end();
}

/// Two groups of the ranks: equal ones, or one rank more and one less.
Decomposition two_groups(int ranks) {
  if (ranks % 2 == 0) return {{ranks / 2}, {2}};
  return {{(ranks + 1) / 2, ranks / 2}, {2}};
}

std::optional<Plan> plan_of(Family family, Collective collective, int ranks) {
  Plan plan;
  plan.collective = collective;
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  const auto dimensions = [&](std::initializer_list<Algorithm> algorithms) {
    plan.dimensions.clear();
    for (const Algorithm algorithm : algorithms) plan.dimensions.push_back({algorithm, Carrier::network});
  };
  if (const std::optional<Algorithm> algorithm = single_algorithm(family)) {
    if (!can(collective, *algorithm)) return std::nullopt;
    plan.decomposition = Decomposition({ranks}, {});
    dimensions({*algorithm});
    return plan;
  }
  switch (family) {
    case Family::rings_in_rings:
      plan.decomposition = two_groups(ranks);
      plan.chunks = 3;
      dimensions({Algorithm::ring, Algorithm::ring});
      return plan;
    case Family::mixed: {
      plan.decomposition = two_groups(ranks);
      plan.chunks = 2;
      // A two_shot from or to a root needs equal groups.
      const bool has_root = collective == Collective::broadcast || collective == Collective::reduce;
      const Algorithm first = has_root && plan.decomposition.ragged() ? Algorithm::tree : Algorithm::two_shot;
      std::ranges::reverse(plan.order);
      plan.order_name = "in reverse";
      dimensions({first, can(collective, Algorithm::halving_doubling) ? Algorithm::halving_doubling
                                                                      : Algorithm::tree});
      return plan;
    }
    case Family::ragged: {
      const int second = (ranks - 2) / 2;
      if (second < 1) return std::nullopt;
      plan.decomposition = Decomposition({ranks - second, second}, {2});
      dimensions({Algorithm::ring, Algorithm::two_shot});
      return plan;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

bool has_plan(Family family, Collective collective, int ranks) {
  switch (family) {
    case Family::chosen:
    case Family::split:
      return true;
    case Family::mode_rings:
    case Family::mode_mpi:
      return ranks > 1;
    default:
      return ranks > 1 && plan_of(family, collective, ranks).has_value();
  }
}

std::string host_of(Transport transport, int rank, int ranks) {
  const auto name = [](int host) { return fmt::format("h{}", host); };
  switch (transport) {
    case Transport::threads:
    case Transport::shared_memory:
      return name(0);
    case Transport::ucx:
    case Transport::mpi:
      return name(rank);
    case Transport::hosts: {
      // Half of the ranks, a third, and the remainder.
      const int first = (ranks + 1) / 2;
      const int second = first + (ranks + 2) / 3;
      return name(rank < first ? 0 : rank < second ? 1 : 2);
    }
    case Transport::hosts_by_turns:
      return name(rank % 3);
  }
  return {};
}

ddl::ContextOptions options_of(Family family, Transport transport, int rank, int ranks) {
  ddl::ContextOptions options;
  options.deadline = std::chrono::seconds(120);
  options.host_id = host_of(transport, rank, ranks);
  const bool has_network = transport != Transport::threads;
  if (has_network) {
    options.network = transport == Transport::mpi ? ddl::NetworkUse::mpi : ddl::NetworkUse::automatic;
  }
  if (family == Family::mode_rings) options.mode = Mode::rings;
  if (family == Family::mode_mpi) options.mode = Mode::mpi;
  for (const Collective collective : collectives) {
    if (ranks == 1) continue;
    if (std::optional<Plan> plan = plan_of(family, collective, ranks)) options.plans.push_back(*plan);
  }
  return options;
}

}  // namespace matrix
