#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The resources of flows: flow f uses resources[begin[f] .. begin[f + 1]), each once.
struct FlowPaths {
  std::vector<std::uint32_t> begin = {0};
  std::vector<std::uint32_t> resources;

  [[nodiscard]] std::size_t flows() const noexcept { return begin.size() - 1; }
  [[nodiscard]] std::span<const std::uint32_t> of(std::uint32_t flow) const {
    return std::span(resources).subspan(begin[flow], begin[flow + 1] - begin[flow]);
  }
};

/// Rates of flows that share resources max-min fairly: no flow's rate can rise without lowering the rate of a
/// flow that has no more. This is the one allocation in which each flow has a bottleneck: a resource without
/// capacity left, on which no flow has a higher rate (Bertsekas and Gallager, "Data Networks", 6.5.2).
///
/// Flows start and stop; `settle` then corrects only the rates that change: it fills up the affected flows
/// beside the others' fixed rates, looks for flows whose bottleneck is not one any more, and repeats with
/// those. O(flows on the affected resources) a round.
class MaxMin {
 public:
  /// Each path has at least one resource; capacities are positive. At first no flow is active.
  MaxMin(std::vector<double> capacities, FlowPaths paths);

  /// The flow must not be active.
  void start(std::uint32_t flow);
  /// The flow must be active, with a call of `settle` since its start.
  void stop(std::uint32_t flow);
  /// Returns the active flows whose rate has changed since the last call. Valid until the next call.
  std::span<const std::uint32_t> settle();

  [[nodiscard]] double rate(std::uint32_t flow) const { return flows_[flow].rate; }
  /// The rate that an active flow gets at least, whatever the others take.
  [[nodiscard]] double least_rate(std::uint32_t flow) const;
  /// The work of all calls of `settle` so far: the number of rates that were computed.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  struct Flow {
    double rate = 0;
    double new_rate = 0;
    std::uint32_t bottleneck = none;
    std::uint32_t affected = 0;  // the last round that affected it
    std::uint32_t frozen = 0;    // the last fill that set its new rate
  };
  struct Use {
    std::uint32_t flow;
    std::uint32_t hop;  // position in the flow's path
  };
  struct Resource {
    double capacity = 0;
    double load = 0;      // sum of its flows' rates
    double residual = 0;  // capacity that unaffected flows leave
    double left = 0;      // what a fill has left of `residual`
    double level = 0;     // the rate at which a fill froze its flows; infinite if it froze none
    std::uint32_t affected_flows = 0;
    std::uint32_t unfrozen = 0;
    std::uint32_t touched = 0;  // the last round that touched it
    bool lost_flow = false;
    std::vector<Use> uses;
  };
  struct Share {
    double share;
    std::uint32_t resource;
    bool operator>(const Share& other) const noexcept {
      return share != other.share ? share > other.share : resource > other.resource;
    }
  };

  bool is_alone(std::uint32_t flow) const;
  void set_alone(std::uint32_t flow);
  void affect(std::uint32_t flow);
  void affect_around(std::uint32_t started);
  void affect_component();
  void fill();
  bool affect_more();
  void apply();

  FlowPaths paths_;
  std::vector<std::uint32_t> position_;  // by hop: its position in the resource's uses
  std::vector<Flow> flows_;
  std::vector<Resource> resources_;
  std::vector<std::uint32_t> started_;
  std::vector<std::uint32_t> freed_;     // resources that lost a flow
  std::vector<std::uint32_t> affected_;  // flows
  std::vector<std::uint32_t> touched_;   // resources of affected flows
  std::vector<std::uint32_t> changed_;
  std::vector<Share> heap_;
  std::uint64_t work_ = 0;
  std::uint32_t round_ = 0;
  std::uint32_t fill_ = 0;
};

/// What flows compete for: channels, or both channels of half-duplex links.
struct Sharing {
  std::vector<double> capacities;  // bytes/us
  FlowPaths paths;
};

/// `routes[f]` are flow f's channels. Of resources that the same flows use, only the narrowest is kept.
Sharing share_channels(const Topology& topology, std::span<const std::span<const Channel>> routes);

}  // namespace ddl::topology
