#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The ways of flows over resources: flow f uses resources[begin[f] .. begin[f + 1]), each once.
struct FlowPaths {
  std::vector<std::uint32_t> begin = {0};
  std::vector<std::uint32_t> resources;

  [[nodiscard]] std::size_t flows() const noexcept { return begin.size() - 1; }
  [[nodiscard]] std::span<const std::uint32_t> of(std::uint32_t flow) const {
    return std::span(resources).subspan(begin[flow], begin[flow + 1] - begin[flow]);
  }
};

/// Rates of flows that share resources max-min fairly: no flow's rate can rise without lowering that of one
/// that has no more. It is the one allocation in which each flow has a bottleneck: a resource without
/// capacity left, on which no flow has more (Bertsekas and Gallager, "Data Networks", 6.5.2).
///
/// Flows come and go; `settle` then corrects what that changes and leaves the rest alone: it fills up the
/// affected flows beside the others' fixed rates, looks for flows whose bottleneck is none any more, and
/// repeats with those. O(flows on the affected resources) a round.
class MaxMin {
 public:
  /// Each path has at least one resource; capacities are positive. No flow is active.
  MaxMin(std::vector<double> capacities, FlowPaths paths);

  /// Of a flow that is not active.
  void start(std::uint32_t flow);
  /// Of one that is, since the last `settle` at least.
  void stop(std::uint32_t flow);
  /// The active flows whose rate is another than when it was last called. Valid until the next call.
  std::span<const std::uint32_t> settle();

  [[nodiscard]] double rate(std::uint32_t flow) const { return flows_[flow].rate; }
  /// What an active flow gets at least, whatever the others take.
  [[nodiscard]] double least_rate(std::uint32_t flow) const;
  /// The work of all calls of `settle` so far: how many flows' rates were looked at.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  struct Flow {
    double rate = 0;
    double new_rate = 0;
    std::uint32_t bottleneck = none;
    std::uint32_t affected = 0;  // the round in which it was, last
    std::uint32_t frozen = 0;    // the fill in which it got its new rate, last
  };
  struct Use {
    std::uint32_t flow;
    std::uint32_t hop;  // position in the path
  };
  struct Resource {
    double capacity = 0;
    double load = 0;      // sum of the rates
    double residual = 0;  // what the flows that are not affected leave
    double left = 0;      // of that, during a fill
    double level = 0;     // where a fill froze flows because of it, else above all rates
    std::uint32_t affected_flows = 0;
    std::uint32_t unfrozen = 0;
    std::uint32_t touched = 0;  // the round in which it was, last
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
  std::vector<std::uint32_t> position_;  // of each hop in its resource's uses
  std::vector<Flow> flows_;
  std::vector<Resource> resources_;
  std::vector<std::uint32_t> started_;
  std::vector<std::uint32_t> freed_;     // resources that lost a flow
  std::vector<std::uint32_t> affected_;  // flows
  std::vector<std::uint32_t> touched_;   // their resources
  std::vector<std::uint32_t> changed_;
  std::vector<Share> heap_;
  std::uint64_t work_ = 0;
  std::uint32_t round_ = 0;
  std::uint32_t fill_ = 0;
};

/// What flows compete for: channels, or whole links where they are half-duplex.
struct Sharing {
  std::vector<double> capacities;  // bytes/us
  FlowPaths paths;
};

/// `routes[f]` are flow f's channels. Of resources that the same flows use only the narrowest is kept.
Sharing share_channels(const Topology& topology, std::span<const std::span<const Channel>> routes);

}  // namespace ddl::topology
