#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "topology/planner/planner_routes.hpp"
#include "topology/planner/resource_classes.hpp"

namespace ddl::topology {

struct PatternEdge {
  int from;  ///< Index in the group.
  int to;
};

/// Messages that have no need to wait for one another, all of the same length.
struct PatternRound {
  int repeat = 1;      ///< So many such rounds, each after the one before.
  double share = 0;    ///< Of the group's range, in each message.
  double reduced = 0;  ///< Of the range: what a receiver adds or copies after the last byte came.
  std::vector<PatternEdge> edges;
  /// Of a message's latency, what keeps the next round waiting on the slowest way through the group.
  double latency = 1;
  bool uses_scratch = false;  ///< Receivers put it beside what they have before they add it.
};

/// What the members of a group of `size` send one another in a phase, without the data: the same as the
/// lowering's steps. Member 0 is the root of a broadcast or reduce. Edges of a ring are in its order.
/// `in_turn`: what several members send is reduced in one pass, as over shared memory.
std::vector<PatternRound> pattern_of(Collective collective, Algorithm algorithm, PhaseKind kind, int size,
                                     bool in_turn = false);

/// One round of a phase, of all groups at once, for a range of b bytes that each member works on.
struct ProfileRound {
  int repeat = 1;
  double sends = 0;         ///< Messages of the rank that sends most.
  double latency = 0;       ///< us: of the longest way; in a ring the mean over its edges.
  double us_per_byte = 0;   ///< Until the last byte left, all messages side by side.
  double alone = 0;         ///< The same of one message that has its way to itself.
  double local = 0;         ///< us a byte of what receivers reduce and copy.
  double busy = 0;          ///< us for which its messages keep a network link busy, besides their bytes.
  double slowest_edge = 0;  ///< Of a ring: us a byte of its slowest edge.
  double slowest_latency = 0;
  bool uses_scratch = false;
  std::size_t column = 0;          ///< Of the resource classes.
  std::size_t column_without = 0;  ///< The same without reductions.
};

/// A phase in figures.
struct PhaseProfile {
  std::vector<ProfileRound> rounds;
  std::size_t total_column = 0;  ///< Of all rounds together.
  std::size_t total_without = 0;
  double messages = 0;   ///< Of all ranks, for one chunk.
  bool returns = false;  ///< Its way back uses the same streams: not in a tree, which turns around.

  /// The rounds backwards, without reductions.
  [[nodiscard]] PhaseProfile reversed() const;
};

/// A set of groups that run a phase at once: the positions of each, member 0 first, and the part of the
/// range that the group works on.
struct ProfiledGroup {
  std::span<const int> ranks;
  double weight;
  std::span<const double> shares = {};  ///< Of that, what each member is left with; empty: all as much.
};
using GroupVisitor = std::function<void(const ProfiledGroup&)>;
using GroupSource = std::function<void(const GroupVisitor&)>;

/// Makes profiles.
class Profiler {
 public:
  Profiler(const Topology& topology, const Placement& placement, const CostModel& cost,
           PlannerRoutes& routes);

  /// How a phase's bytes are moved.
  struct Way {
    bool in_turn = false;   ///< As in `pattern_of`.
    double wire_share = 1;  ///< Of a range's bytes, what travels of it between hosts.
  };
  /// `for_each_group` calls its argument with every group; it is called several times.
  PhaseProfile make(Collective collective, Algorithm algorithm, PhaseKind kind, Way way,
                    const GroupSource& for_each_group);

  [[nodiscard]] const ResourceClasses& classes() const noexcept { return classes_; }

 private:
  void add_load(Resource resource, double share);
  std::size_t add_column(std::vector<double>& totals, double scale);
  std::vector<Load> take_total(std::vector<double>& total);
  void add_reductions(const ProfiledGroup& group, const PatternRound& round, double share);

  PlannerRoutes* routes_;
  double network_message_us_;
  std::vector<int> messages_;  // on each network resource, in a round
  std::vector<Resource> with_messages_;
  double reduction_us_ = 0;  // a byte, on the slowest kind of device
  ResourceClasses classes_;
  std::vector<double> load_;  // of each resource, in us a byte
  std::vector<Resource> touched_;
  std::vector<double> total_;
  std::vector<double> total_without_;    // reductions
  std::vector<Resource> total_touched_;  // a resource may be listed several times
  std::vector<Resource> core_of_;        // of each rank, what its reductions keep busy; -1: nothing
  bool has_cores_ = false;
  std::vector<bool> is_reducing_;  // of each rank
  std::vector<int> sends_;         // of each rank
};

}  // namespace ddl::topology
