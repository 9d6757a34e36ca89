#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// What the way between two devices crosses at most.
enum class WayKind : std::uint8_t {
  inside_package,    ///< Nothing but memory, NVLink and PCIe.
  between_packages,  ///< Also links between packages of a host.
  between_hosts,     ///< Also NICs and the network.
};

std::string_view to_string(WayKind kind) noexcept;

/// The kind of way that bytes take between two nodes, and that a link makes of a way.
WayKind way_between(const Topology& topology, int from_node, int to_node);
WayKind way_over(const Topology& topology, int link);

/// What was measured of one kind of way.
struct Measurement {
  WayKind way = WayKind::inside_package;
  int from = 0;  ///< Indices into devices() of the two between which the latency was measured, and
  int to = 0;    ///< which stand for all of their kind.
  double latency =
      0;  ///< us, one way, a small message; between hosts, of which all ranks send some at a time.
  double bandwidth = 0;  ///< GB/s in one direction, of all pairs together that use the same links.

  friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// The topology with figures of its links as they were measured: for each measurement, the links that only
/// ways of its kind and wider ones cross (`way_over`) are scaled alike, so that the way from `from` to `to`
/// has the measured latency, and the narrowest of those links on it the measured bandwidth. Narrower kinds
/// come first, whatever the order of the measurements; where they alone exceed the latency, the links of the
/// wider kind get none. A pure function; O(links).
///
/// Errors: `invalid_argument` for a device that does not exist, a way of another kind, a kind twice, and
/// figures out of `Topology`'s ranges.
Topology calibrated(const Topology& topology, std::span<const Measurement> measurements);

/// As text that `measurements_from_json` reads back to equal values; `topology` is what was measured.
std::string to_json(std::span<const Measurement> measurements, const Topology& topology);
/// Throws `corrupt_data` naming `source`, the path inside it, what was found and what was expected: not JSON,
/// more than 64 KiB, unknown, repeated or missing keys, another topology's hash, and all that `calibrated`
/// refuses.
std::vector<Measurement> measurements_from_json(std::string_view text, std::string_view source,
                                                const Topology& topology);

}  // namespace ddl::topology
