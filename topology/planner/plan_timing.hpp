#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ddl/topology/planner.hpp"
#include "topology/planner/phase_profile.hpp"
#include "topology/planner/pipeline_time.hpp"
#include "topology/planner/plan_shape.hpp"
#include "topology/planner/planner_routes.hpp"
#include "topology/planner/rank_order.hpp"

namespace ddl::topology {

/// Predicts times of plans, and keeps the profiles that it computes.
class PlanTiming {
 public:
  PlanTiming(const Topology& topology, const Placement& placement, const CostModel& cost);

  [[nodiscard]] const std::vector<RankOrder>& orders() const noexcept { return orders_; }
  /// The index of an order, which is added if it is new.
  std::size_t order_index(RankOrder order);
  /// The order in which the ranks of each host are adjacent.
  [[nodiscard]] std::size_t host_order() const noexcept { return host_order_; }
  /// The one of several rings in each host, if there is one.
  [[nodiscard]] std::optional<std::size_t> rings_order() const noexcept { return rings_order_; }
  [[nodiscard]] const HostRanks& hosts() const noexcept { return hosts_; }

  /// Sets the part of a dimension's bytes that is sent between hosts: the wire's part of the type.
  void set_wire_share(double share) noexcept { wire_share_ = share; }
  /// The phases of a shape, valid as long as this. Rank 0 is the root of a broadcast or reduce.
  std::vector<ProfiledPhase> phases(Collective collective, const PlanShape& shape);
  /// Whether a shape's inner dimensions are inside hosts, and the others between hosts.
  [[nodiscard]] bool along_hosts(const PlanShape& shape) const;
  [[nodiscard]] double step_overhead() const noexcept { return step_overhead_; }
  /// The pipeline of `phases`; valid until the next call of any function.
  PipelineTime& pipeline(std::span<const ProfiledPhase> phases);

  /// Whether all groups of a dimension are inside hosts.
  bool inside_hosts(const PlanShape& shape, int dimension);

 private:
  using Key = std::vector<int>;

  void set_ranges(const PlanShape& shape, ProfiledPhase& phase);
  const PhaseProfile& profile(Collective collective, const PlanShape& shape, const Phase& phase);

  double step_overhead_;
  bool has_cpu_ = false;
  double wire_share_ = 1;
  PlannerRoutes routes_;
  HostRanks hosts_;
  std::vector<RankOrder> orders_;
  std::optional<std::size_t> rings_order_;
  std::size_t host_order_;
  Profiler profiler_;
  PipelineTime pipeline_;
  std::unordered_map<Key, std::unique_ptr<PhaseProfile>, NumbersHash> profiles_;
  std::unordered_map<Key, bool, NumbersHash> inside_;
  std::map<std::pair<std::size_t, int>, double> runs_;  // of neighbouring ranks, by order and stride
};

}  // namespace ddl::topology
