#include "ddl/device/device_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "collectives/communicator/plan_book.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/error.hpp"
#include "ddl/log.hpp"

namespace ddl::device {
namespace {

using topology::Algorithm;
using topology::Carrier;
using topology::Collective;
using topology::Mode;
using topology::Plan;
using topology::PlanDimension;

/// us that a collective of a group takes besides what its links take: launches, meetings, a thread that
/// drives a network. NCCL's is the base latency of a ring in its own model (LL128 of src/graph/tuning.cc is
/// 14, Simple 8.4); the others are estimates until a machine has been measured.
double call_us(Carrier carrier) {
  switch (carrier) {
    case Carrier::cuda_ipc:
      return 6;
    case Carrier::nccl:
      return 8.4;
    case Carrier::host_memory:
      return 40;
    default:
      return 20;
  }
}

topology::Placement device_of_each(int ranks) {
  topology::Placement placement(static_cast<std::size_t>(ranks));
  std::iota(placement.begin(), placement.end(), 0);
  return placement;
}

bool asks_for_nccl(Mode mode) { return mode == Mode::nccl || mode == Mode::nccl_per_dimension; }

bool goes_by(const Plan& plan, Carrier carrier) {
  return std::ranges::all_of(plan.dimensions,
                             [&](const PlanDimension& dimension) { return dimension.carrier == carrier; });
}

}  // namespace

DevicePlans::DevicePlans(Context& context, std::shared_ptr<const topology::Topology> topology,
                         DeviceCarriers carriers)
    : context_(context),
      topology_(std::move(topology)),
      carriers_(carriers),
      planner_(*topology_, device_of_each(context.size())) {
  const topology::RankMap& map = context.communicator().rank_map();
  for (int host = 0; host < map.hosts(); ++host) {
    const auto ranks = map.ranks_of(host);
    by_host_.insert(by_host_.end(), ranks.begin(), ranks.end());
  }
}

const DevicePlan& DevicePlans::of(Collective collective, std::size_t bytes, DataType type) {
  const Key key{collective, collectives::size_class(bytes), type};
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  DevicePlan chosen = choose(key);
  for (const std::string& note : chosen.plan.notes) note_shortcoming(context_, note);
  if (context_.is_root()) context_.log().info("plan on devices: " + summary(chosen.plan));
  return known_.emplace(key, std::move(chosen)).first->second;
}

Plan DevicePlans::flat(const Key& key, Algorithm algorithm, Carrier carrier) const {
  const auto& [collective, bytes, type] = key;
  Plan plan;
  plan.collective = collective;
  plan.bytes = bytes;
  plan.type = type;
  plan.mode = context_.options().mode;
  plan.decomposition = topology::Decomposition({context_.size()}, {});
  plan.dimensions = {{algorithm, carrier}};
  plan.order = by_host_;
  plan.order_name = "by host";
  return plan;
}

/// The steps of any plan, each message by the network. It is not NCCL's: -mode n and b ask for others.
Plan DevicePlans::by_network(const Key& key) {
  const ContextOptions& options = context_.options();
  topology::PlanRequest request;
  std::tie(request.collective, request.bytes, request.type) = key;
  if (!asks_for_nccl(options.mode)) request.mode = options.mode;
  if (!options.decomposition.empty()) {
    request.decomposition = topology::Decomposition::parse(options.decomposition, context_.size());
  }
  request.nccl = false;
  Plan plan = planner_.choose(request);
  for (PlanDimension& dimension : plan.dimensions) dimension.carrier = Carrier::network;
  return plan;
}

/// In chunks that follow one another.
void DevicePlans::add_by_dimension(const Key& key, PlanDimension inner, PlanDimension outer,
                                   std::vector<Plan>& plans) const {
  constexpr int most_chunks = 64;
  constexpr std::size_t least_chunk_bytes = std::size_t{64} << 10;
  for (int chunks = 1; chunks <= most_chunks; chunks *= 2) {
    Plan plan = flat(key, inner.algorithm, inner.carrier);
    if (chunks > 1 && plan.bytes / static_cast<std::size_t>(chunks) < least_chunk_bytes) break;
    plan.decomposition = topology::Decomposition({context_.size() / context_.hosts()}, {context_.hosts()});
    plan.dimensions = {inner, outer};
    plan.chunks = chunks;
    plans.push_back(std::move(plan));
  }
}

std::vector<Plan> DevicePlans::candidates(const Key& key) {
  const auto& [collective, bytes, type] = key;
  const bool is_one_host = context_.hosts() == 1;
  std::vector<Plan> plans;
  if (carriers_.exchange && is_one_host) {
    plans.push_back(flat(key, Algorithm::two_shot, Carrier::cuda_ipc));
    if (collective == Collective::all_reduce && bytes <= carriers_.most_one_shot) {
      plans.push_back(flat(key, Algorithm::one_shot, Carrier::cuda_ipc));
    }
  }
  if (carriers_.nccl) plans.push_back(flat(key, Algorithm::ring, Carrier::nccl));
  if (carriers_.between == Carrier::host_memory)
    plans.push_back(flat(key, Algorithm::ring, Carrier::host_memory));
  if (carriers_.between == Carrier::network) plans.push_back(by_network(key));
  if (collective != Collective::all_reduce || is_one_host) return plans;
  std::vector<Carrier> inner;
  if (carriers_.exchange) inner.push_back(Carrier::cuda_ipc);
  if (carriers_.nccl_by_dimension) inner.push_back(Carrier::nccl);
  std::vector<PlanDimension> outer;
  if (carriers_.nccl_by_dimension) outer.push_back({Algorithm::ring, Carrier::nccl});
  if (carriers_.between_by_dimension) {
    outer.push_back({Algorithm::ring, *carriers_.between});
    if (carriers_.between == Carrier::network && context_.hosts() > 2) {
      outer.push_back({Algorithm::two_shot, Carrier::network});
      outer.push_back({Algorithm::halving_doubling, Carrier::network});
    }
  }
  for (const Carrier carrier : inner) {
    const PlanDimension own{carrier == Carrier::nccl ? Algorithm::ring : Algorithm::two_shot, carrier};
    for (const PlanDimension& between : outer) add_by_dimension(key, own, between, plans);
  }
  return plans;
}

/// DDL_PLAN's, as it is. A network takes any plan's steps; other carriers do what is in their candidates.
std::optional<Plan> DevicePlans::given(const Key& key, const std::vector<Plan>& plans,
                                       std::vector<std::string>& notes) const {
  const std::vector<Plan>& all = context_.options().plans;
  const auto found = std::ranges::find(all, std::get<Collective>(key), &Plan::collective);
  if (found == all.end()) return {};
  Plan plan = *found;
  std::tie(plan.collective, plan.bytes, plan.type) = key;
  const auto has_same_steps = [&](const Plan& other) {
    return other.decomposition == plan.decomposition && other.order == plan.order &&
           other.dimensions == plan.dimensions;
  };
  const bool is_possible = goes_by(plan, Carrier::network) ? carriers_.between == Carrier::network
                                                           : std::ranges::any_of(plans, has_same_steps);
  if (is_possible) return plan;
  notes.push_back(
      fmt::format("DDL_PLAN asks for {}, which the carriers between these devices cannot do, or not for all "
                  "sizes: the plan is chosen without it",
                  summary(*found)));
  return {};
}

/// Those that -mode asks for; all of them, and a note, if there is none.
std::vector<Plan> DevicePlans::wanted(std::vector<Plan> plans, std::vector<std::string>& notes) const {
  const ContextOptions& options = context_.options();
  const auto keep = [&](const std::string& what, const auto& is_wanted) {
    std::vector<Plan> kept;
    std::ranges::copy_if(plans, std::back_inserter(kept), is_wanted);
    if (kept.empty()) {
      notes.push_back(
          fmt::format("-mode {} (DDL_OPTIONS) asks for {}, but no carrier between these devices can do that: "
                      "the plan is chosen without it",
                      letter_of(options.mode), what));
    } else {
      plans = std::move(kept);
    }
  };
  const auto is_deep = [](const Plan& plan) { return plan.dimensions.size() > 1; };
  if (options.mode == Mode::rings) {
    keep("rings", [](const Plan& plan) {
      return std::ranges::all_of(plan.dimensions, [](const PlanDimension& dimension) {
        return dimension.carrier != Carrier::network || dimension.algorithm == Algorithm::ring;
      });
    });
  }
  if (options.mode == Mode::mpi) {
    keep("no hierarchy", [&](const Plan& plan) { return !is_deep(plan) || goes_by(plan, Carrier::network); });
  }
  if (asks_for_nccl(options.mode)) {
    const bool is_flat = options.mode == Mode::nccl;
    keep(is_flat ? "NCCL over all ranks" : "NCCL",
         [&](const Plan& plan) { return goes_by(plan, Carrier::nccl) && !(is_flat && is_deep(plan)); });
    if (!is_flat && std::ranges::any_of(plans, is_deep)) keep("NCCL by dimension", is_deep);
  }
  if (!options.decomposition.empty()) {
    keep("the grid " + options.decomposition,
         [&](const Plan& plan) { return to_string(plan.decomposition) == options.decomposition; });
  }
  return plans;
}

void DevicePlans::predict(Plan& plan) {
  planner_.predict(plan);
  double all = 0;
  double longest = 0;
  for (const topology::Phase& phase : phases_of(plan)) {
    const double us = call_us(plan.dimensions[static_cast<std::size_t>(phase.dimension)].carrier);
    all += us;
    longest = std::max(longest, us);
  }
  if (goes_by(plan, Carrier::network)) all = call_us(Carrier::network);  // one program
  plan.predicted_us += all + (plan.chunks - 1) * longest;
}

DevicePlan DevicePlans::choose(const Key& key) {
  std::vector<std::string> notes;
  std::vector<Plan> plans = candidates(key);
  if (const std::optional<Plan> plan = given(key, plans, notes)) {
    plans = {*plan};
  } else {
    plans = wanted(std::move(plans), notes);
  }
  for (Plan& plan : plans) predict(plan);
  DevicePlan chosen;
  chosen.plan = *std::ranges::min_element(plans, {}, &Plan::predicted_us);
  chosen.plan.notes.insert(chosen.plan.notes.end(), notes.begin(), notes.end());
  chosen.hash = topology::hash(chosen.plan);
  chosen.is_one_program = goes_by(chosen.plan, Carrier::network);
  for (std::size_t d = 0; d < chosen.plan.dimensions.size(); ++d) {
    const int members = chosen.plan.decomposition.size(static_cast<int>(d));
    Plan& own = chosen.of_dimension.emplace_back();
    own.collective = chosen.plan.collective;
    own.bytes = chosen.plan.bytes;
    own.type = chosen.plan.type;
    own.decomposition = topology::Decomposition({members}, {});
    own.dimensions = {chosen.plan.dimensions[d]};
    own.order = device_of_each(members);
  }
  return chosen;
}

}  // namespace ddl::device
