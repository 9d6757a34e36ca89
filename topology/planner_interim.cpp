// Stands in until the planner lands: a hierarchy of rings by host.
#include <algorithm>
#include <map>

#include "ddl/topology/planner.hpp"

namespace ddl::topology {

struct Planner::State {
  const Topology& topology;
  Placement placement;
  CostModel cost;
};

Planner::Planner(const Topology& topology, Placement placement, CostModel cost)
    : state_(std::make_unique<State>(State{topology, std::move(placement), cost})) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

Plan Planner::choose(const PlanRequest& request) {
  std::map<int, std::vector<int>> hosts;
  for (std::size_t r = 0; r < state_->placement.size(); ++r) {
    const int device = state_->topology.devices()[static_cast<std::size_t>(state_->placement[r])];
    hosts[state_->topology.nodes()[static_cast<std::size_t>(device)].host].push_back(static_cast<int>(r));
  }
  Plan plan;
  plan.collective = request.collective;
  plan.bytes = request.bytes;
  plan.type = request.type;
  plan.mode = request.mode;
  plan.order.clear();
  std::vector<int> sizes;
  for (const auto& [host, ranks] : hosts) {
    sizes.push_back(static_cast<int>(ranks.size()));
    plan.order.insert(plan.order.end(), ranks.begin(), ranks.end());
  }
  plan.decomposition = request.decomposition ? *request.decomposition
                       : sizes.size() == 1   ? Decomposition({sizes[0]}, {})
                                             : Decomposition(sizes, {static_cast<int>(sizes.size())});
  const bool is_broadcast = request.collective == Collective::broadcast;
  plan.dimensions.assign(static_cast<std::size_t>(plan.decomposition.dimensions()),
                         {is_broadcast && request.bytes < 65536 ? Algorithm::tree : Algorithm::ring,
                          request.mode == Mode::mpi ? Carrier::mpi : Carrier::shared_memory});
  if (is_broadcast && request.bytes >= 65536) {
    plan.chunks = static_cast<int>(std::clamp<std::uint64_t>(request.bytes >> 17, 1, 64));
  }
  plan.order_name = "by host";
  return plan;
}

std::vector<Plan> Planner::candidates(const PlanRequest& request, std::size_t) { return {choose(request)}; }
void Planner::predict(Plan&) {}
const Topology& Planner::topology() const noexcept { return state_->topology; }
const Placement& Planner::placement() const noexcept { return state_->placement; }
const CostModel& Planner::cost() const noexcept { return state_->cost; }

}  // namespace ddl::topology
