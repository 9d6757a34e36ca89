#include "topology/planner/device_candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "topology/plan/algorithms.hpp"
#include "topology/planner/plan_shape.hpp"

namespace ddl::topology {
namespace {

constexpr std::uint64_t least_chunk_bytes = std::uint64_t{64} << 10;

bool asks_for_nccl(Mode mode) { return mode == Mode::nccl || mode == Mode::nccl_per_dimension; }

bool goes_by(const Plan& plan, Carrier carrier) {
  return std::ranges::all_of(plan.dimensions,
                             [&](const PlanDimension& dimension) { return dimension.carrier == carrier; });
}

}  // namespace

DeviceCandidates::DeviceCandidates(const Topology& topology, const Placement& placement,
                                   const CostModel& cost, RankOrder rings)
    : carriers_(*topology.carriers()), cost_(&cost), rings_(std::move(rings)) {
  const std::vector<std::vector<int>> hosts = ranks_by_host(topology, placement);
  for (const auto& ranks : hosts) by_host_.insert(by_host_.end(), ranks.begin(), ranks.end());
  hosts_ = static_cast<int>(hosts.size());
  const auto uneven = std::ranges::find_if(
      hosts, [&](const std::vector<int>& ranks) { return ranks.size() != hosts.front().size(); });
  has_dimensions_ = hosts_ > 1 && uneven == hosts.end() && hosts.front().size() > 1;
  if (uneven != hosts.end()) {
    no_dimensions_ = fmt::format(
        "hosts have {} and {} ranks: carriers of devices have groups along the hosts only where all have as "
        "many, so collectives go over all ranks at once",
        hosts.front().size(), uneven->size());
  }
}

std::vector<Plan> DeviceCandidates::of(const PlanRequest& request) const {
  std::vector<Plan> plans;
  Plan flat;
  flat.collective = request.collective;
  flat.bytes = request.bytes;
  flat.type = request.type;
  flat.mode = request.mode;
  flat.decomposition = Decomposition({static_cast<int>(by_host_.size())}, {});
  flat.order = by_host_;
  flat.order_name = "by host";
  // Only a network executes the ragged hierarchy of an all-reduce.
  if (!no_dimensions_.empty() && !carriers_.network && request.collective == Collective::all_reduce) {
    flat.notes = {no_dimensions_};
  }
  const auto add = [&](bool is_there, PlanDimension dimension) {
    if (!is_there) return;
    flat.dimensions = {dimension};
    plans.push_back(flat);
    if (dimension.carrier == Carrier::nccl) set_rings(plans.back());
  };
  const bool is_one_shot =
      request.collective == Collective::all_reduce && request.bytes <= carriers_.one_shot_bytes;
  const bool is_exchange = carriers_.exchange && hosts_ == 1;
  add(is_exchange, {Algorithm::two_shot, Carrier::cuda_ipc});
  add(is_exchange && is_one_shot, {Algorithm::one_shot, Carrier::cuda_ipc});
  add(carriers_.nccl && request.nccl, {Algorithm::ring, Carrier::nccl});
  add(carriers_.host_memory, {Algorithm::ring, Carrier::host_memory});
  if (has_dimensions_) add_by_dimension(request, flat, plans);
  return plans;
}

void DeviceCandidates::add_by_dimension(const PlanRequest& request, const Plan& flat,
                                        std::vector<Plan>& plans) const {
  const bool has_nccl = carriers_.nccl && request.nccl;
  std::vector<PlanDimension> inner;
  if (carriers_.exchange) inner.push_back({Algorithm::two_shot, Carrier::cuda_ipc});
  if (has_nccl) inner.push_back({Algorithm::ring, Carrier::nccl});
  std::vector<PlanDimension> outer;
  if (has_nccl) outer.push_back({Algorithm::ring, Carrier::nccl});
  if (carriers_.exchange && carriers_.host_memory) outer.push_back({Algorithm::ring, Carrier::host_memory});
  if (carriers_.exchange && carriers_.network) {
    for (const Algorithm algorithm : algorithms_for(request.collective, Mode::explore, hosts_, false)) {
      outer.push_back({algorithm, Carrier::network});
    }
  }
  for (const PlanDimension& inside : inner) {
    for (const PlanDimension& between : outer) {
      for (int chunks = 1; chunks <= most_chunks; chunks *= 2) {
        if (chunks > 1 && flat.bytes / static_cast<std::uint64_t>(chunks) < least_chunk_bytes) break;
        Plan plan = flat;
        plan.decomposition = Decomposition({static_cast<int>(by_host_.size()) / hosts_}, {hosts_});
        plan.dimensions = {inside, between};
        plan.chunks = chunks;
        if (inside.carrier == Carrier::nccl) set_rings(plan);
        plans.push_back(std::move(plan));
      }
    }
  }
}

void DeviceCandidates::set_rings(Plan& plan) const {
  plan.order = rings_.ranks;
  plan.further_orders = rings_.further;
  plan.order_name = rings_.name;
}

bool DeviceCandidates::is_of_network(const Plan& plan) { return goes_by(plan, Carrier::network); }

bool DeviceCandidates::include(const Plan& plan) const {
  if (is_of_network(plan)) return carriers_.network;
  const bool is_flat = plan.dimensions.size() == 1;
  if (is_flat && plan.chunks > 1) return false;
  PlanRequest request;
  request.collective = plan.collective;
  request.bytes = plan.bytes;
  request.type = plan.type;
  return std::ranges::any_of(of(request), [&](const Plan& other) {
    return other.decomposition == plan.decomposition && other.order == plan.order &&
           other.further_orders == plan.further_orders &&
           std::ranges::equal(other.dimensions, plan.dimensions, [](PlanDimension a, PlanDimension b) {
             return a.algorithm == b.algorithm && a.carrier == b.carrier;
           });
  });
}

/// With the best protocol. Links have the latencies of LL's steps. A ring's way up and down are one call.
double DeviceCandidates::nccl_us(const Plan& plan, const Phase& phase, PhaseTime time, bool is_first) const {
  const int members = plan.decomposition.size(phase.dimension);
  const double steps = members - 1;
  const double between = plan.dimensions.size() > 1 ? (phase.dimension > 0 ? steps : 0)
                         : hosts_ > 1               ? steps * hosts_ / members
                                                    : 0;
  const double links = time.all - time.latency;
  // The slices of a chain are in flight on all of its links together.
  const double bytes = has_root(plan.collective) ? links / std::max(1.0, steps) : links;
  const CostModel::NcclProtocol& counted = cost_->nccl.front();
  double best = std::numeric_limits<double>::infinity();
  for (const CostModel::NcclProtocol& protocol : cost_->nccl) {
    const double latency = (steps - between) * (protocol.step_inside - counted.step_inside) +
                           between * (protocol.step_between - counted.step_between);
    best = std::min(best, (is_first ? protocol.call : 0) + latency + bytes / protocol.bandwidth - links);
  }
  return best;
}

double DeviceCandidates::calls_us(const Plan& plan, const std::vector<PhaseTime>& times) const {
  if (is_of_network(plan)) {  // the whole plan is one program
    double messages = 0;
    for (const PhaseTime& time : times) messages += time.messages;
    return cost_->network_call + plan.chunks * messages * cost_->network_message;
  }
  const std::vector<Phase> phases = phases_of(plan);
  std::vector<double> of_dimension(plan.dimensions.size(), 0);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const auto d = as_index(phases[i].dimension);
    // The last dimension's way up and down are one call.
    const bool is_first = i == 0 || phases[i - 1].dimension != phases[i].dimension;
    switch (plan.dimensions[d].carrier) {
      case Carrier::nccl:
        of_dimension[d] += nccl_us(plan, phases[i], times[i], is_first);
        break;
      case Carrier::cuda_ipc:
        of_dimension[d] += is_first ? cost_->exchange_call : 0;
        break;
      case Carrier::host_memory:
        of_dimension[d] += is_first ? cost_->host_memory_call : 0;
        break;
      default:
        of_dimension[d] += is_first ? cost_->network_call : 0;
        of_dimension[d] += times[i].messages * cost_->network_message;
    }
  }
  // A plan by dimensions first copies the pieces of all ranks into the order of its groups.
  if (plan.dimensions.size() > 1 && has_pieces(plan.collective)) {
    of_dimension[0] += cost_->reduction_us(NodeKind::gpu, static_cast<double>(plan.bytes) / plan.chunks);
  }
  // Each dimension has one stream, on which the calls of all chunks follow one another.
  double all = 0;
  for (const double us : of_dimension) all += us;
  return all + (plan.chunks - 1) * std::ranges::max(of_dimension);
}

PlanRequest for_network(PlanRequest request) {
  if (asks_for_nccl(request.mode)) request.mode = Mode::explore;
  request.nccl = false;
  return request;
}

std::vector<Plan> narrowed(std::vector<Plan> plans, const PlanRequest& request,
                           std::vector<std::string>& notes) {
  const auto keep = [&](const std::string& what, const auto& is_wanted) {
    std::vector<Plan> kept;
    std::ranges::copy_if(plans, std::back_inserter(kept), is_wanted);
    if (kept.empty()) {
      notes.push_back(
          fmt::format("-mode {} (DDL_OPTIONS) asks for {}, but no carrier between these devices can do that: "
                      "the plan is chosen without it",
                      letter_of(request.mode), what));
    } else {
      plans = std::move(kept);
    }
  };
  const auto is_deep = [](const Plan& plan) { return plan.dimensions.size() > 1; };
  if (request.mode == Mode::rings) {
    keep("rings", [](const Plan& plan) {
      return std::ranges::all_of(plan.dimensions, [](const PlanDimension& dimension) {
        return dimension.carrier != Carrier::network || dimension.algorithm == Algorithm::ring;
      });
    });
  }
  if (request.mode == Mode::mpi) {
    keep("no hierarchy", [&](const Plan& plan) { return !is_deep(plan) || goes_by(plan, Carrier::network); });
  }
  if (asks_for_nccl(request.mode)) {
    const bool is_flat = request.mode == Mode::nccl;
    keep(is_flat ? "NCCL over all ranks" : "NCCL",
         [&](const Plan& plan) { return goes_by(plan, Carrier::nccl) && !(is_flat && is_deep(plan)); });
    if (!is_flat && std::ranges::any_of(plans, is_deep)) keep("NCCL by dimension", is_deep);
  }
  if (request.decomposition) {
    keep("the grid " + to_string(*request.decomposition),
         [&](const Plan& plan) { return plan.decomposition == *request.decomposition; });
  }
  if (request.chunks) {
    const auto is_cut = [&](const Plan& plan) { return plan.chunks == *request.chunks; };
    if (std::ranges::any_of(plans, is_cut)) std::erase_if(plans, std::not_fn(is_cut));
  }
  return plans;
}

}  // namespace ddl::topology
