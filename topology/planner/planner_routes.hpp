#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ddl/topology/cost_model.hpp"

namespace ddl::topology {

/// What competes for bandwidth: a channel, or a whole link where it is half-duplex.
using Resource = std::int32_t;

/// A way between two ranks.
struct PlannedRoute {
  std::span<const Resource> resources;  ///< Valid until the next call.
  double latency = 0;                   ///< us
  double us_per_byte = 0;               ///< Of the narrowest.
  bool is_tcp = false;                  ///< Between `cpu` devices of two hosts.
  bool in_memory = false;               ///< See `is_in_memory`: of the links there is only the last one.
};

/// `Topology::route` between ranks, asked once for all hosts that are alike: hosts with the same nodes and
/// links, and the same ends of those that leave them.
class PlannerRoutes {
 public:
  PlannerRoutes(const Topology& topology, const Placement& placement);

  PlannedRoute between(int from_rank, int to_rank);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(place_of_.size()); }
  [[nodiscard]] int host_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)].host; }
  /// Equal for hosts that are alike.
  [[nodiscard]] int kind_of_host(int host) const { return hosts_[static_cast<std::size_t>(host)].kind; }
  /// A rank's place in its host: equal ones on hosts that are alike have equal ways.
  [[nodiscard]] int index_in_host(int rank) const { return place_of_[static_cast<std::size_t>(rank)].index; }
  [[nodiscard]] std::size_t resources() const { return 2 * topology_->links().size(); }
  [[nodiscard]] bool is_network(Resource resource) const {
    return topology_->links()[static_cast<std::size_t>(link_of(resource))].kind == LinkKind::network;
  }
  /// us a byte
  [[nodiscard]] double us_per_byte(Resource resource) const {
    return us_per_byte_[static_cast<std::size_t>(link_of(resource))];
  }

 private:
  struct Host {
    int kind = -1;
    std::vector<int> links;  // with an end in it, ascending
  };
  struct Place {
    int host;
    int index;
    int node;
  };
  enum class Part : std::uint8_t { from_host, to_host, between };
  struct Hop {
    Part part;
    std::uint8_t direction;
    std::int32_t link;  // index into the host's links, or a link
  };
  struct Template {
    std::vector<Hop> hops;
    double latency = 0;
    double us_per_byte = 0;
    bool is_tcp = false;
    bool in_memory = false;
  };
  struct Key {
    int from_kind, from_index, to_kind, to_index;
    bool same_host;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Known {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    double latency = -1;  // below 0: not yet
    double us_per_byte = 0;
    bool is_tcp = false;
    bool in_memory = false;
  };

  void find_kinds();
  const Template& template_of(int from_rank, int to_rank);
  PlannedRoute resolve(int from_rank, int to_rank);
  [[nodiscard]] Resource resource_of(Channel channel) const;

  const Topology* topology_;
  std::vector<Host> hosts_;
  std::vector<Place> place_of_;
  std::unordered_map<Key, Template, KeyHash> templates_;
  std::vector<double> us_per_byte_;  // of each link
  std::vector<Resource> buffer_;
  std::vector<Known> known_;  // of each pair, where there are few ranks
  std::vector<Resource> known_resources_;
};

}  // namespace ddl::topology
