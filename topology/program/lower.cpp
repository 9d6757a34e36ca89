#include <algorithm>
#include <utility>

#include "ddl/topology/program.hpp"
#include "topology/program/lowering.hpp"
#include "topology/program/passes.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

void require_rank(const Plan& plan, int rank, const char* what) {
  const std::size_t ranks = plan.order.size();
  if (rank < 0 || as_index(rank) >= ranks) {
    refuse("lowering: found {} {}, expected 0 to {}", what, rank, ranks - 1);
  }
}

void require_count(const Plan& plan, std::size_t count) {
  if (!has_pieces(plan.collective) || count % plan.order.size() == 0) return;
  refuse(
      "lowering: found a{} {} of {} elements, expected a multiple of {}: each rank has a piece of one length",
      plan.collective == Collective::all_gather ? "n" : "", to_string(plan.collective), count,
      plan.order.size());
}

/// The plan in each of its orders.
std::vector<PlanInRounds> in_rounds(const Plan& plan) {
  std::vector<PlanInRounds> orders = {{plan, plan.order}};
  for (const std::vector<int>& order : plan.further_orders) orders.emplace_back(plan, order);
  return orders;
}

/// `root` is used by broadcast and reduce alone.
Program lower_for(std::span<const PlanInRounds> orders, int rank, int root, std::size_t count) {
  const Plan& plan = *orders.front().plan;
  StepList steps(count, wire_of(plan));
  if (has_pieces(plan.collective)) {
    lower_pieces(orders, rank, count, steps);
    return std::move(steps).in_order();
  }
  std::vector<Place> places;
  for (const PlanInRounds& order : orders) places.push_back(order.place(rank));
  const int parts = static_cast<int>(orders.size());
  const Partition all({0, count}, plan.chunks * parts);
  for (int index = 0; index < plan.chunks * parts; ++index) {
    const PlanInRounds& order = orders[as_index(index % parts)];
    const Place& place = places[as_index(index % parts)];
    steps.start_part(index / parts);
    if (has_root(plan.collective)) {
      lower_rooted(order, place, order.place(root), all.piece(index), steps);
    } else {
      lower_all_reduce(order, place, all.piece(index), steps);
    }
  }
  return std::move(steps).in_order();
}

}  // namespace

PlanInRounds::PlanInRounds(const Plan& of, const std::vector<int>& order)
    : plan(&of), grid(of.decomposition, order), position_of(order.size()) {
  for (std::size_t i = 0; i < order.size(); ++i) position_of[as_index(order[i])] = static_cast<int>(i);
  bool rounded_down = false;
  for (const Phase& phase : phases_of(of)) {
    const PlanDimension& dimension = of.dimensions[as_index(phase.dimension)];
    const bool goes_down = phase.kind == PhaseKind::all_gather || phase.kind == PhaseKind::broadcast;
    TimedPhase timed{phase, dimension.algorithm, dimension.carrier, rounds};
    timed.narrow = dimension.wire.has_value();
    timed.rounds_first = timed.narrow && goes_down && !rounded_down;
    rounded_down |= timed.rounds_first;
    int most = 0;
    for (const int size : grid.sizes(phase.dimension)) {
      timed.patterns.emplace_back(of.collective, dimension.algorithm, phase.kind, size);
      most = std::max(most, timed.patterns.back().rounds());
      if (of.collective == Collective::broadcast && phase.kind == PhaseKind::all_gather)
        timed.apart.emplace_back(of.collective, dimension.algorithm, phase.kind, size, true);
    }
    rounds += most;
    phases.push_back(std::move(timed));
  }
}

Program lower(const Plan& plan, int rank, std::size_t count, int root) {
  require_valid(plan);
  require_count(plan, count);
  require_rank(plan, rank, "rank");
  require_rank(plan, root, "root");
  return lower_for(in_rounds(plan), rank, root, count);
}

Schedule lower_all(const Plan& plan, std::size_t count, int root) {
  require_valid(plan);
  require_count(plan, count);
  require_rank(plan, root, "root");
  const std::vector<PlanInRounds> orders = in_rounds(plan);
  Schedule schedule{plan.collective, root, count, std::vector<Program>(plan.order.size())};
  for (std::size_t rank = 0; rank < plan.order.size(); ++rank) {
    schedule.ranks[rank] = lower_for(orders, static_cast<int>(rank), root, count);
  }
  return schedule;
}

Program lower_barrier(int ranks, int rank, std::size_t count) {
  if (rank < 0 || rank >= ranks) {
    refuse("lowering: found rank {} of {}, expected 0 to {}", rank, ranks, ranks - 1);
  }
  Program program;
  for (int distance = 1; distance < ranks; distance *= 2) {
    // A receive into the buffer would wait for the send from it, and the circle of ranks would deadlock.
    program.scratch += count;
    const std::size_t heard = program.scratch;
    program.steps.push_back(
        {.kind = StepKind::send, .peer = (rank + distance) % ranks, .begin = 0, .end = count});
    program.steps.push_back({.kind = StepKind::receive,
                             .peer = (rank - distance + ranks) % ranks,
                             .begin = heard,
                             .end = heard + count});
    program.steps.push_back({.kind = StepKind::reduce, .begin = 0, .end = count, .source = heard});
  }
  return program;
}

bool is_by_mpi_alone(const Plan& plan) {
  return std::ranges::all_of(
      plan.dimensions, [](const PlanDimension& dimension) { return dimension.carrier == Carrier::mpi; });
}

Schedule schedule_to_run(const Plan& plan, std::size_t count, int root, const Topology& topology,
                         const Placement& placement, std::size_t most_messages) {
  require_valid(topology, placement);
  Schedule schedule = lower_all(plan, count, root);
  if (placement.size() != schedule.ranks.size()) {
    refuse("lowering: found a placement of {} ranks, expected one of the plan's {}", placement.size(),
           schedule.ranks.size());
  }
  const auto node_of = [&](std::size_t rank) -> const Node& {
    return topology.node(topology.node_of_device(placement[rank]));
  };
  std::vector<int> host;
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    if (node_of(rank).kind != NodeKind::cpu) return schedule;
    host.push_back(is_by_mpi_alone(plan) ? static_cast<int>(rank) : node_of(rank).host);
  }
  const auto sharing_with = [&host](std::size_t rank) -> SharesMemory {
    return [&host, rank](int peer) { return host[as_index(peer)] == host[rank]; };
  };
  const auto messages = [&](const MessageSizes& most) {
    std::size_t sum = 0;
    for (std::size_t rank = 0; rank < host.size(); ++rank) {
      for (const Step& step : schedule.ranks[rank].steps) {
        if (step.kind != StepKind::send) continue;
        const bool inside = host[as_index(step.peer)] == host[rank];
        sum += (step.size() - 1) / (inside ? most.inside_host : most.between_hosts) + 1;
      }
    }
    return sum;
  };
  MessageSizes most = message_bytes_of(plan.collective, plan.bytes).of(size_of(plan.type));
  for (std::size_t before = SIZE_MAX, now = messages(most); now > most_messages && now < before;) {
    most = {2 * most.inside_host, 2 * most.between_hosts};
    before = std::exchange(now, messages(most));
  }
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    Program& program = schedule.ranks[rank];
    program = fuse(cut(std::move(program), most, sharing_with(rank)), sharing_with(rank));
  }
  return schedule;
}

}  // namespace ddl::topology
