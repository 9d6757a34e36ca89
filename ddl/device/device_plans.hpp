#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/topology/planner.hpp"

namespace ddl::device {

/// What there is to carry collectives between the ranks' devices.
struct DeviceCarriers {
  bool exchange = false;           ///< Inside each host.
  std::size_t most_one_shot = 0;   ///< Bytes that the exchange reduces by one_shot.
  bool nccl = false;               ///< Among all ranks.
  bool nccl_by_dimension = false;  ///< Also inside each host, and between hosts.
  /// Among all ranks, where hosts have no NCCL between them: network or host_memory.
  std::optional<topology::Carrier> between = {};
  bool between_by_dimension = false;  ///< Also between ranks of the same index on their hosts.
};

/// A plan, and what its execution needs of it.
struct DevicePlan {
  topology::Plan plan;
  std::uint64_t hash = 0;
  bool is_one_program =
      false;  ///< All of it is the steps of one group's program, and not of groups by dimension.
  /// By dimension: its own plan, for a group that runs steps.
  std::vector<topology::Plan> of_dimension;

  /// Whether groups of its dimensions do it, and not one group of all ranks.
  [[nodiscard]] bool goes_by_dimension() const noexcept {
    return !is_one_program && plan.dimensions.size() > 1;
  }
};

/// The plans of collectives on devices. Of those that the carriers can execute, the one with the least
/// predicted time for the devices' topology; DDL_OPTIONS' -mode, with its grid, narrows the choice, and
/// DDL_PLAN makes it. What they ask for and the carriers cannot do becomes a note of the plan. A pure
/// function of these, so all ranks choose alike. One thread.
class DevicePlans {
 public:
  DevicePlans(Context& context, std::shared_ptr<const topology::Topology> topology, DeviceCarriers carriers);

  /// For calls of `bytes` bytes, as Communicator::plan counts them. The result stays. Throws, agreed,
  /// `unsupported` for one with notes in strict mode.
  const DevicePlan& of(topology::Collective collective, std::size_t bytes, DataType type);

 private:
  using Key = std::tuple<topology::Collective, std::size_t, DataType>;

  [[nodiscard]] DevicePlan choose(const Key& key);
  [[nodiscard]] std::vector<topology::Plan> candidates(const Key& key);
  [[nodiscard]] std::optional<topology::Plan> given(const Key& key, const std::vector<topology::Plan>& plans,
                                                    std::vector<std::string>& notes) const;
  [[nodiscard]] std::vector<topology::Plan> wanted(std::vector<topology::Plan> plans,
                                                   std::vector<std::string>& notes) const;
  [[nodiscard]] topology::Plan flat(const Key& key, topology::Algorithm algorithm,
                                    topology::Carrier carrier) const;
  [[nodiscard]] topology::Plan by_network(const Key& key);
  void add_by_dimension(const Key& key, topology::PlanDimension inner, topology::PlanDimension outer,
                        std::vector<topology::Plan>& plans) const;
  void predict(topology::Plan& plan);

  Context& context_;
  std::shared_ptr<const topology::Topology> topology_;
  DeviceCarriers carriers_;
  topology::Planner planner_;
  std::vector<int> by_host_;  // all ranks
  std::map<Key, DevicePlan> known_;
};

}  // namespace ddl::device
