#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"
#include "topology/lowering/lower_phases.hpp"

namespace ddl::topology {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

int position_of(const Plan& plan, int rank, const char* what) {
  const auto found = std::find(plan.order.begin(), plan.order.end(), rank);
  if (found == plan.order.end()) {
    refuse(fmt::format("lowering: found {} {}, expected 0 to {}", what, rank, plan.order.size() - 1));
  }
  return static_cast<int>(found - plan.order.begin());
}

void require_count(const Plan& plan, std::size_t count) {
  if (!has_pieces(plan.collective) || count % plan.order.size() == 0) return;
  refuse(fmt::format(
      "lowering: found a{} {} of {} elements, expected a multiple of {}: each rank has a piece of one length",
      plan.collective == Collective::all_gather ? "n" : "", to_string(plan.collective), count,
      plan.order.size()));
}

/// `root` is that of a broadcast or reduce.
Program lower_at(const PlanInRounds& plan, const Place& place, const Place& root, std::size_t count) {
  StepList steps(count);
  if (has_pieces(plan.plan->collective)) {
    lower_pieces(plan, place, count, steps);
    return std::move(steps).in_order();
  }
  const Partition chunks({0, count}, plan.chunks);
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    steps.start_chunk(chunk);
    const Range range = chunks.piece(chunk);
    if (plan.plan->collective == Collective::broadcast) {
      lower_broadcast(plan, place, root, range, steps);
    } else if (plan.plan->collective == Collective::reduce) {
      lower_reduce(plan, place, root, range, steps);
    } else {
      lower_all_reduce(plan, place, range, steps);
    }
  }
  return std::move(steps).in_order();
}

}  // namespace

PlanInRounds::PlanInRounds(const Plan& of) : plan(&of), grid(of.decomposition, of.order), chunks(of.chunks) {
  for (const Phase& phase : phases_of(of)) {
    const auto [algorithm, carrier] = of.dimensions[static_cast<std::size_t>(phase.dimension)];
    TimedPhase timed{phase, algorithm, carrier, rounds, {}};
    int most = 0;
    for (const int size : grid.sizes(phase.dimension)) {
      timed.patterns.emplace_back(of.collective, algorithm, phase.kind, size);
      most = std::max(most, timed.patterns.back().rounds());
    }
    rounds += most;
    phases.push_back(std::move(timed));
  }
}

Program lower(const Plan& plan, int rank, std::size_t count, int root) {
  require_valid(plan);
  require_count(plan, count);
  const PlanInRounds in_rounds(plan);
  const Place place = in_rounds.grid.place(position_of(plan, rank, "rank"));
  const Place root_place = in_rounds.grid.place(position_of(plan, root, "root"));
  return lower_at(in_rounds, place, root_place, count);
}

Schedule lower_all(const Plan& plan, std::size_t count, int root) {
  require_valid(plan);
  require_count(plan, count);
  const PlanInRounds in_rounds(plan);
  const Place root_place = in_rounds.grid.place(position_of(plan, root, "root"));
  Schedule schedule{plan.collective, root, count, std::vector<Program>(plan.order.size())};
  for (std::size_t position = 0; position < plan.order.size(); ++position) {
    const Place place = in_rounds.grid.place(static_cast<int>(position));
    schedule.ranks[static_cast<std::size_t>(plan.order[position])] =
        lower_at(in_rounds, place, root_place, count);
  }
  return schedule;
}

}  // namespace ddl::topology
