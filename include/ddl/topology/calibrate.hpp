#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// Kinds of routes between devices, by the widest kind of link that a route crosses.
enum class WayKind : std::uint8_t {
  inside_package,    ///< Only memory, NVLink and PCIe.
  between_packages,  ///< Also links between packages of a host.
  between_hosts,     ///< Also NICs and the network.
};

/// "inside_package", ...
std::string_view to_string(WayKind kind) noexcept;

/// The kind of `Topology::route` between two nodes, given by their indices. Throws as `Topology::route` does.
WayKind way_between(const Topology& topology, int from_node, int to_node);
/// The kind of a route that crosses this link and no wider one. `link`: index into links(), not checked.
WayKind way_over(const Topology& topology, int link);

/// Latency and bandwidth that were measured for one kind of route.
struct Measurement {
  WayKind way = WayKind::inside_package;  ///< The kind of route.
  int from = 0;  ///< Index into devices() of one end of the route that stands for its kind.
  int to = 0;    ///< Index into devices() of the other end.
  /// us, one way, of a small message; between hosts, while all ranks send several at a time.
  double latency = 0;
  double bandwidth = 0;  ///< GB/s in one direction, the sum of all pairs that use the same links.

  /// Memberwise equality.
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// The topology with measured figures. For each measurement, all links of its kind (`way_over`) are scaled by
/// the same factors, so that the route from `from` to `to` has the measured latency, and the slowest of those
/// links on it has the measured bandwidth. Kinds are applied from inside_package outwards, whatever the order
/// of the measurements; if the links of inner kinds alone exceed the measured latency, those of the outer
/// kind get a latency of 0. A pure function; O(links).
///
/// Throws `invalid_argument` for a device that does not exist, a route of another kind, two measurements of
/// one kind, and figures outside of `Topology`'s ranges.
Topology calibrated(const Topology& topology, std::span<const Measurement> measurements);

/// JSON text that `measurements_from_json` reads back to equal values, with the hash of `topology`, on which
/// they were measured.
std::string to_json(std::span<const Measurement> measurements, const Topology& topology);
/// Reads measurements of `topology`. `source`: what messages call the text. Throws `corrupt_data`, naming
/// `source`, the path inside it, what was found and what was expected, for text that is not JSON or longer
/// than 64 KiB, unknown, repeated or missing keys, the hash of another topology, and everything that
/// `calibrated` refuses.
std::vector<Measurement> measurements_from_json(std::string_view text, std::string_view source,
                                                const Topology& topology);

}  // namespace ddl::topology
