#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ddl/hash.hpp"
#include "ddl/topology/cost_model.hpp"

namespace ddl::topology {

/// What competes for bandwidth: a channel, or both channels of a half-duplex link.
using Resource = std::int32_t;

/// What a route between two ranks costs.
struct RouteFigures {
  double latency = 0;      ///< us
  double us_per_byte = 0;  ///< On the narrowest resource.
  bool is_tcp = false;     ///< Between `cpu` devices of two hosts.
  bool in_memory = false;  ///< See `is_in_memory`. The only resource is then the route's last link.
};

struct PlannedRoute : RouteFigures {
  std::span<const Resource> resources;  ///< Valid until the next call.
};

/// Hashes keys that are lists of numbers.
struct NumbersHash {
  std::size_t operator()(std::span<const int> numbers) const noexcept {
    Fnv hash;
    for (const int number : numbers) hash.add(static_cast<std::uint64_t>(number));
    return hash.value();
  }
};

/// `Topology::route` between ranks, asked once for all hosts that are alike: hosts with the same nodes and
/// links, whose links to the outside have the same ends there.
class PlannerRoutes {
 public:
  PlannerRoutes(const Topology& topology, const Placement& placement);

  PlannedRoute between(int from_rank, int to_rank);
  /// Whether each link, by index, is on a route between two of the ranks. O(routes that differ).
  std::vector<bool> used_links();

  [[nodiscard]] int host_of(int rank) const { return place_of_[as_index(rank)].host; }
  /// Equal for hosts that are alike.
  [[nodiscard]] int kind_of_host(int host) const { return hosts_[as_index(host)].kind; }
  /// A rank's place in its host. Equal places on hosts that are alike have equal routes.
  [[nodiscard]] int index_in_host(int rank) const { return place_of_[as_index(rank)].index; }
  [[nodiscard]] std::size_t resources() const { return 2 * topology_->links().size(); }
  [[nodiscard]] bool is_network(Resource resource) const {
    return topology_->link(link_of(resource)).kind == LinkKind::network;
  }
  [[nodiscard]] double us_per_byte(Resource resource) const {
    return us_per_byte_[as_index(link_of(resource))];
  }

 private:
  struct Host {
    int kind = -1;
    std::vector<int> links;  // with an end in the host, ascending
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
    std::int32_t link;  // index into the host's links, or for `between` the link itself
  };
  /// The route between two places, for all hosts that are alike.
  struct Template {
    std::vector<Hop> hops;
    RouteFigures figures;
  };
  std::vector<int> find_kinds();
  const Template& template_of(int from_rank, int to_rank);
  [[nodiscard]] Resource resource_of(Channel channel) const;

  const Topology* topology_;
  std::vector<Host> hosts_;
  std::vector<Place> place_of_;
  std::unordered_map<std::array<int, 5>, Template, NumbersHash> templates_;  // by kinds of host and places
  std::vector<double> us_per_byte_;                                          // by link
  std::vector<Resource> buffer_;
};

}  // namespace ddl::topology
