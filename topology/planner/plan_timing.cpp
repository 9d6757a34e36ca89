#include "topology/planner/plan_timing.hpp"

#include <algorithm>
#include <utility>

#include "topology/plan/algorithms.hpp"
#include "topology/planner/plan_groups.hpp"

namespace ddl::topology {
namespace {

/// Adds what determines a dimension's groups: the distance between members and their number, or the group
/// sizes of a ragged first dimension.
void add_place(std::vector<int>& key, const Decomposition& decomposition, int dimension) {
  int stride = dimension == 0 ? 1 : decomposition.ragged() ? -1 : decomposition.group_size(0);
  for (int i = 1; i < dimension; ++i) stride *= decomposition.size(i);
  key.push_back(stride);
  if (dimension > 0) key.push_back(decomposition.size(dimension));
  const auto groups = decomposition.group_sizes();
  if (dimension == 0 || decomposition.ragged()) key.insert(key.end(), groups.begin(), groups.end());
}

}  // namespace

PlanTiming::PlanTiming(const Topology& topology, const Placement& placement, const CostModel& cost)
    : step_overhead_(cost.step_overhead),
      routes_(topology, placement),
      hosts_(host_ranks(topology, placement)),
      orders_(rank_orders(topology, placement, routes_)),
      rings_order_(orders_.back().further.empty() ? std::nullopt : std::optional(orders_.size() - 1)),
      host_order_(rings_order_.value_or(orders_.size()) - 1),
      profiler_(topology, placement, cost, routes_),
      pipeline_(profiler_.classes(), cost.step_overhead) {
  for (const int device : placement) {
    has_cpu_ |= topology.node(topology.node_of_device(device)).kind == NodeKind::cpu;
  }
}

std::size_t PlanTiming::order_index(RankOrder order) {
  for (std::size_t i = 0; i < orders_.size(); ++i) {
    if (orders_[i].ranks == order.ranks && orders_[i].further == order.further) return i;
  }
  orders_.push_back(std::move(order));
  return orders_.size() - 1;
}

const PhaseProfile& PlanTiming::profile(Collective collective, const PlanShape& shape, const Phase& phase) {
  const Decomposition& decomposition = shape.decomposition;
  const RankOrder& orders = orders_[shape.order];
  const auto d = as_index(phase.dimension);
  const Algorithm algorithm = shape.algorithms[d];
  // A reduce-scatter is half of an all-reduce, except that with a ragged dimension others handle the pieces.
  const bool is_half = collective == Collective::reduce_scatter && !decomposition.ragged();
  const Collective family = is_half ? Collective::all_reduce : collective;
  const double wire_share = wire_share_ == 1 || inside_hosts(shape, phase.dimension) ? 1 : wire_share_;
  const bool is_apart = phase.kind == PhaseKind::all_gather && collective == Collective::broadcast &&
                        decomposition.size(phase.dimension) < decomposition.ranks();
  Key key = {static_cast<int>(shape.order), static_cast<int>(family), static_cast<int>(phase.kind),
             static_cast<int>(algorithm), static_cast<int>(1 / wire_share)};
  add_place(key, decomposition, phase.dimension);
  key.push_back(-2);
  if (has_root(collective)) {
    const auto root = std::ranges::find(orders.ranks, 0) - orders.ranks.begin();
    // Which inner positions have data: runs of dimensions that scatter, and of those that do not.
    int run = 1;
    bool is_cut = false;
    for (std::size_t i = 0; i < d; ++i) {
      const bool was_cut = std::exchange(is_cut, scatters(collective, shape.algorithms[i]));
      if (i > 0 && (root != 0 || was_cut != is_cut)) key.insert(key.end(), {std::exchange(run, 1), was_cut});
      run *= decomposition.size(static_cast<int>(i));
    }
    key.insert(key.end(), {run, is_cut, is_apart});
  } else {
    // Which inner positions are active: runs of dimensions that keep all of them, and trees.
    int all = 1;
    for (std::size_t i = 0; i < d; ++i) {
      const int size = decomposition.size(static_cast<int>(i));
      if (traits_of(shape.algorithms[i]).leaves_one) {
        key.insert(key.end(), {all, size});
        all = 1;
      } else if (i == 0 && decomposition.ragged()) {
        key.insert(key.end(), {-3, traits_of(shape.algorithms[i]).is_staged ? 1 : 0});
      } else {
        all *= size;
      }
    }
  }
  // The way back of a scatter carries the same bytes over the same links.
  const bool is_back = collective == Collective::all_reduce && phase.kind == PhaseKind::all_gather;
  if (const auto known = profiles_.find(key); known != profiles_.end()) return *known->second;
  std::unique_ptr<PhaseProfile> made;
  if (is_back) {
    const PhaseProfile& there = profile(collective, shape, {PhaseKind::reduce_scatter, phase.dimension});
    made = std::make_unique<PhaseProfile>(there.reversed());
  } else {
    ProfiledGroups groups;
    orders.for_each([&](const std::vector<int>& order) {
      const auto root = has_root(collective) ? std::ranges::find(order, 0) - order.begin() : 0;
      const PlanGroups of_order(collective, decomposition, shape.algorithms, order, static_cast<int>(root));
      groups.add(of_order.of(phase), 1 / orders.count());
    });
    const bool in_turn = has_cpu_ && inside_hosts(shape, phase.dimension);
    made = std::make_unique<PhaseProfile>(profiler_.make(
        collective, algorithm, phase.kind, {in_turn, wire_share, is_apart, orders.count()}, groups));
  }
  return *profiles_.emplace(std::move(key), std::move(made)).first->second;
}

std::vector<ProfiledPhase> PlanTiming::phases(Collective collective, const PlanShape& shape) {
  Plan plan;
  plan.collective = collective;
  plan.decomposition = shape.decomposition;
  plan.dimensions.clear();
  for (const Algorithm algorithm : shape.algorithms) plan.dimensions.push_back({algorithm, {}});
  // The part of the buffer that a member of each dimension works on.
  std::vector<double> share(shape.algorithms.size(), 1);
  for (std::size_t i = 1; i < share.size(); ++i) {
    const bool is_cut =
        scatters(collective, shape.algorithms[i - 1]) && !(i == 1 && shape.decomposition.ragged());
    share[i] = share[i - 1] / (is_cut ? shape.decomposition.size(static_cast<int>(i) - 1) : 1);
  }
  std::vector<ProfiledPhase> result;
  for (const Phase& phase : phases_of(plan)) {
    const bool is_down = phase.kind == PhaseKind::all_gather || phase.kind == PhaseKind::broadcast;
    result.push_back(
        {&profile(collective, shape, phase), share[as_index(phase.dimension)], phase.dimension, is_down});
    if (has_pieces(collective)) set_ranges(shape, result.back());
  }
  return result;
}

void PlanTiming::set_ranges(const PlanShape& shape, ProfiledPhase& phase) {
  const Decomposition& decomposition = shape.decomposition;
  const RankOrder& orders = orders_[shape.order];
  int stride = 1;
  for (int d = 0; d < phase.dimension; ++d) stride *= decomposition.size(d);
  const int size = decomposition.size(phase.dimension);
  // Later stages send fewer ranges.
  const std::vector<int> factors = stage_sizes(shape.algorithms[as_index(phase.dimension)], size);
  double ranges = 0;
  double of_chunk = 0;
  for (const int factor : factors) {
    stride *= factor;
    const int ranks = (static_cast<int>(orders.ranks.size()) + stride - 1) / stride;
    of_chunk += ranks;
    if (decomposition.ragged()) {
      ranges += ranks;
      continue;
    }
    const auto [entry, is_new] = runs_.try_emplace({shape.order, stride}, 0);
    if (is_new) {
      orders.for_each([&, runs = &entry->second](const std::vector<int>& order) {
        *runs += neighbour_runs(order, stride) / orders.count();
      });
    }
    ranges += entry->second;
  }
  phase.ranges = ranges / static_cast<double>(factors.size());
  phase.ranges_of_chunk = of_chunk / static_cast<double>(factors.size());
}

bool PlanTiming::along_hosts(const PlanShape& shape) const {
  if (hosts_.sizes.size() == 1 || shape.decomposition.ragged()) return true;
  const bool is_by_host = shape.order == host_order_ || shape.order == rings_order_;
  if (!hosts_.equal || (!is_by_host && !(shape.order == 0 && hosts_.contiguous))) return false;
  return is_aligned(shape.decomposition, hosts_.sizes[0]);
}

PipelineTime& PlanTiming::pipeline(std::span<const ProfiledPhase> phases) {
  pipeline_.set_phases(phases);
  return pipeline_;
}

bool PlanTiming::inside_hosts(const PlanShape& shape, int dimension) {
  Key key = {static_cast<int>(shape.order)};
  add_place(key, shape.decomposition, dimension);
  const auto [entry, is_new] = inside_.try_emplace(std::move(key), true);
  if (!is_new) return entry->second;
  bool inside = true;
  const Decomposition& decomposition = shape.decomposition;
  const int smallest = std::ranges::min(decomposition.group_sizes());
  int stride = 1;
  for (int d = 1; d < dimension; ++d) stride *= decomposition.size(d);
  orders_[shape.order].for_each([&](const std::vector<int>& order) {
    const auto host = [&](int group, int member) {
      return routes_.host_of(order[as_index(decomposition.group_begin(group) + member)]);
    };
    for (int group = 0; group < decomposition.groups(); ++group) {
      const int first =
          dimension == 0 ? group : group - group / stride % decomposition.size(dimension) * stride;
      const int members = dimension == 0 ? decomposition.group_size(group) : smallest;
      for (int member = 0; member < members; ++member) {
        inside &= host(group, member) == host(first, dimension == 0 ? 0 : member);
      }
    }
  });
  return entry->second = inside;
}

}  // namespace ddl::topology
