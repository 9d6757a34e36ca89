#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The routes between placed ranks, each looked up once.
class RouteTable {
 public:
  /// Throws `invalid_argument` as `require_valid` does.
  RouteTable(const Topology& topology, Placement placement);

  struct Route {
    std::vector<Channel> channels;
    double latency = 0;      // us
    double network = 0;      // GB/s of the narrowest network link if both ends are `cpu`, else 0
    bool in_memory = false;  // see `is_in_memory`; the only channel is then the route's last one
  };
  /// Valid as long as this.
  const Route& between(int from_rank, int to_rank);

  [[nodiscard]] const Topology& topology() const noexcept { return *topology_; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(placement_.size()); }
  [[nodiscard]] NodeKind device_kind(int rank) const;
  /// The channel that a rank's reductions share with its transfers; see `core_link`.
  [[nodiscard]] std::optional<Channel> core_channel(int rank) const;

 private:
  [[nodiscard]] int node_of(int rank) const;

  const Topology* topology_;
  Placement placement_;
  std::unordered_map<std::uint64_t, Route> routes_;
};

}  // namespace ddl::topology
