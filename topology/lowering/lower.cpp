#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"
#include "topology/lowering/lower_phases.hpp"
#include "topology/plan/phase_figures.hpp"

namespace ddl::topology {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

int rounds_of(Algorithm algorithm, int size) {
  switch (algorithm) {
    case Algorithm::ring:
      return size - 1;
    case Algorithm::halving_doubling:
      return static_cast<int>(prime_factors(size).size());
    case Algorithm::two_shot:
    case Algorithm::one_shot:
      return 1;
    case Algorithm::tree:
    case Algorithm::double_tree:
      return tree_rounds(size);
  }
  return 0;
}

int position_of(const Plan& plan, int rank, const char* what) {
  const auto found = std::find(plan.order.begin(), plan.order.end(), rank);
  if (found == plan.order.end()) {
    refuse(fmt::format("lowering: found {} {}, expected 0 to {}", what, rank, plan.order.size() - 1));
  }
  return static_cast<int>(found - plan.order.begin());
}

/// `root` is not used by an all_reduce.
Program lower_at(const PlanInRounds& plan, Collective collective, const Place& place, const Place& root,
                 std::size_t count) {
  StepList steps(count);
  const Partition chunks({0, count}, plan.chunks);
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    steps.start_chunk(chunk);
    if (collective == Collective::broadcast) {
      lower_broadcast(plan, place, root, chunks.piece(chunk), steps);
    } else {
      lower_all_reduce(plan, place, chunks.piece(chunk), steps);
    }
  }
  return std::move(steps).in_order();
}

}  // namespace

PlanInRounds::PlanInRounds(const Plan& plan) : grid(plan.decomposition, plan.order), chunks(plan.chunks) {
  for (const Phase& phase : phases_of(plan)) {
    const auto [algorithm, carrier] = plan.dimensions[static_cast<std::size_t>(phase.dimension)];
    phases.push_back({phase, algorithm, carrier, rounds});
    int most = 0;
    for (const int size : grid.sizes(phase.dimension)) {
      most = std::max(most, rounds_of(algorithm, size));
    }
    rounds += most;
  }
}

Program lower(const Plan& plan, int rank, std::size_t count, int root) {
  require_valid(plan);
  const PlanInRounds in_rounds(plan);
  const Place place = in_rounds.grid.place(position_of(plan, rank, "rank"));
  const Place root_place = in_rounds.grid.place(position_of(plan, root, "root"));
  return lower_at(in_rounds, plan.collective, place, root_place, count);
}

Schedule lower_all(const Plan& plan, std::size_t count, int root) {
  require_valid(plan);
  const PlanInRounds in_rounds(plan);
  const Place root_place = in_rounds.grid.place(position_of(plan, root, "root"));
  Schedule schedule{plan.collective, root, count, std::vector<Program>(plan.order.size())};
  for (std::size_t position = 0; position < plan.order.size(); ++position) {
    const Place place = in_rounds.grid.place(static_cast<int>(position));
    schedule.ranks[static_cast<std::size_t>(plan.order[position])] =
        lower_at(in_rounds, plan.collective, place, root_place, count);
  }
  return schedule;
}

}  // namespace ddl::topology
