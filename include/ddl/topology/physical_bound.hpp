#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// Lower bounds in us for the time of every plan on a placement: the bytes that must cross cuts of the graph,
/// and the longest latency. A value type.
///
/// Devices are grouped by connectivity after links are removed, in five levels: links between network
/// switches; all network links; also those between packages; also PCIe; all links. For G groups with devices,
/// an all-reduce of N bytes moves at least 2N(G-1) bytes out of groups in total (N(G-1) of partial sums,
/// N(G-1) of results), and at least N out of and into each. A broadcast moves N into each group but the
/// root's, a reduce N out of each. Of n ranks, a group of g gets at least N g/n bytes in a reduce_scatter and
/// sends N (1 - g/n); in an all_gather it is the other way round. These bytes are divided by the bandwidth of
/// the links that leave the groups, of those on a route between two of the ranks: plans use no others.
class PhysicalBound {
 public:
  /// O(nodes + links) and the routes between ranks that differ. Throws `invalid_argument` as `require_valid`
  /// does for the placement.
  PhysicalBound(const Topology& topology, const Placement& placement);

  /// The bound of a collective on `bytes` bytes: N, of the whole buffer. A barrier's is the longest latency.
  /// 0 for one rank or no bytes. O(groups); any thread.
  [[nodiscard]] double us(Collective collective, std::uint64_t bytes) const;

 private:
  /// Ranks that links connect that are not removed, and what the links from there can carry, in bytes a us.
  struct Group {
    double ranks = 0;
    double in = 0;
    double out = 0;
    double both_ways = 0;  // in and out together; half-duplex links count once
  };
  /// What one level removes.
  struct Cut {
    std::vector<Group> groups;
    double all_one_way = 0;
    double all_both_ways = 0;
  };
  static Cut cut_at(std::size_t level, const Topology& topology, const Placement& placement,
                    const std::vector<bool>& used);
  /// us that the removed links need for the bytes that must cross them.
  [[nodiscard]] double time_across(const Cut& cut, Collective collective, double bytes) const;

  double ranks_;
  double longest_latency_ = 0;
  std::vector<Cut> cuts_;
};

}  // namespace ddl::topology
