#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "topology/planner/planner_routes.hpp"

namespace ddl::topology {

/// The load that one round puts on one resource, in us a byte of the range.
struct Load {
  Resource resource;
  float us_per_byte;
};

/// Resources that every round so far loads alike form one class. A column is the load of one round, by class.
class ResourceClasses {
 public:
  explicit ResourceClasses(std::size_t resources);

  /// Adds a column and returns its index. Each resource is listed at most once; the others have no load.
  std::size_t add(std::span<const Load> loads);

  [[nodiscard]] std::size_t classes() const noexcept { return sizes_.size(); }
  /// All loads of a column. Valid until the next `add`.
  std::span<const float> column(std::size_t index);
  /// `column(index)[of_class]`, without making the whole column.
  [[nodiscard]] float load(std::size_t index, std::uint32_t of_class) const;

 private:
  /// In a column, a class that is newer has the load of the class that it was part of.
  struct Column {
    std::uint32_t classes;                               // when the column was added
    std::vector<std::pair<std::uint32_t, float>> loads;  // by class; the others have none
    std::vector<float> all;                              // empty, or for some or all classes
  };

  static constexpr std::uint32_t none = UINT32_MAX;
  /// What `add` knows of a class.
  struct Loaded {
    std::uint32_t first = none;  // group
    std::uint32_t count = 0;     // resources with a load
  };

  std::vector<std::uint32_t> class_of_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::uint32_t> parents_;  // by class: the one that it was part of
  std::vector<Loaded> loaded_;          // by class
  std::vector<Column> columns_;
};

struct PatternEdge {
  int from;  ///< Index in the group.
  int to;
};

/// Messages of equal length that need not wait for one another.
struct PatternRound {
  int repeat = 1;      ///< The number of such rounds, one after the other.
  double share = 0;    ///< Of the group's range, in each message.
  double reduced = 0;  ///< In ranges: what a receiver adds or copies after the last byte has arrived.
  std::vector<PatternEdge> edges;
  /// The part of a message's latency that delays the next round, on the slowest path through the group.
  double latency = 1;
  bool uses_scratch = false;  ///< Receivers put messages into scratch before they add them.
};

/// The messages between the members of a group of `size` in a phase; they match the lowering's steps. Member
/// 0 is the root of a broadcast or reduce. Edges of a ring are in ring order. `in_turn`: data from several
/// members is reduced in one pass, as over shared memory. `apart`: see `GroupPattern`.
std::vector<PatternRound> pattern_of(Collective collective, Algorithm algorithm, PhaseKind kind, int size,
                                     bool in_turn = false, bool apart = false);

/// One round of a phase, in all groups at once. Bytes are those of the range that each member works on.
struct ProfileRound {
  int repeat = 1;
  double sends = 0;         ///< Messages of the rank that sends most.
  double latency = 0;       ///< us, of the longest route; in a ring the mean over its edges.
  double us_per_byte = 0;   ///< Until the last byte has left, with all messages in flight together.
  double alone = 0;         ///< The same for a message that has its route to itself.
  double local = 0;         ///< us a byte that receivers reduce and copy.
  double busy = 0;          ///< us for which messages occupy a network link, in addition to their bytes.
  double slowest_edge = 0;  ///< In a ring, us a byte of its slowest edge.
  double slowest_latency = 0;
  bool uses_scratch = false;
  std::size_t column = 0;          ///< Index into the resource classes' columns.
  std::size_t column_without = 0;  ///< The same without reductions.
};

/// What a phase costs.
struct PhaseProfile {
  std::vector<ProfileRound> rounds;
  std::size_t total_column = 0;  ///< Of the sum of all rounds.
  std::size_t total_without = 0;
  double messages = 0;   ///< Of all ranks, for one chunk.
  bool returns = false;  ///< The way back uses the same streams; not in a tree, where messages turn around.

  /// The profile of the way back: the rounds in reverse order, without reductions.
  [[nodiscard]] PhaseProfile reversed() const;
};

/// One of the groups that run a phase at once: its ranks, member 0 first, and its part of the range.
struct ProfiledGroup {
  std::span<const int> ranks;
  double weight;
  std::span<const double> shares = {};  ///< Parts of `weight` left with each member; empty: equal.
};

/// The groups that run a phase at once.
class ProfiledGroups {
 public:
  void add(std::span<const int> ranks, double weight, std::span<const double> shares = {}) {
    groups_.push_back({ranks_.size(), ranks.size(), weight, shares_.size(), shares.size()});
    ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
    shares_.insert(shares_.end(), shares.begin(), shares.end());
  }
  /// Adds groups with `part` of their weights.
  void add(const ProfiledGroups& others, double part) {
    others.for_each([&](const ProfiledGroup& group) { add(group.ranks, group.weight * part, group.shares); });
  }
  void for_each(const auto& visit) const {
    for (const Place& at : groups_) {
      visit(ProfiledGroup{std::span(ranks_).subspan(at.ranks, at.size), at.weight,
                          std::span(shares_).subspan(at.shares, at.with_shares)});
    }
  }

 private:
  struct Place {
    std::size_t ranks;
    std::size_t size;
    double weight;
    std::size_t shares;
    std::size_t with_shares;
  };
  std::vector<int> ranks_;
  std::vector<double> shares_;
  std::vector<Place> groups_;
};

/// Computes profiles from the routes between ranks.
class Profiler {
 public:
  Profiler(const Topology& topology, const Placement& placement, const CostModel& cost,
           PlannerRoutes& routes);

  /// How a phase moves its bytes.
  struct Way {
    bool in_turn = false;   ///< As in `pattern_of`.
    double wire_share = 1;  ///< The part of a range's bytes that is sent between hosts.
    bool apart = false;     ///< As in `pattern_of`; counts for the root's group too.
    double orders = 1;      ///< In each of a plan's orders of ranks, a rank has groups and reduces in them.
  };
  PhaseProfile make(Collective collective, Algorithm algorithm, PhaseKind kind, Way way,
                    const ProfiledGroups& groups);

  [[nodiscard]] ResourceClasses& classes() noexcept { return classes_; }

 private:
  void add_load(Resource resource, double share);
  void add_to(std::vector<double>& totals, double scale);
  std::size_t add_column();
  std::vector<Load> take_total(std::vector<double>& total);
  void add_reductions(const ProfiledGroup& group, const PatternRound& round, double share);

  PlannerRoutes* routes_;
  double network_message_us_;
  std::vector<int> messages_;  // by network resource, in the current round
  std::vector<Resource> with_messages_;
  double reduction_us_ = 0;  // per byte, on the slowest kind of device
  ResourceClasses classes_;
  std::vector<double> load_;  // by resource, in us a byte
  std::vector<Resource> touched_;
  std::vector<double> total_;
  std::vector<double> total_without_;    // without reductions
  std::vector<Resource> total_touched_;  // may list a resource several times
  std::vector<Resource> core_of_;        // by rank: the resource that its reductions occupy, or -1
  bool has_cores_ = false;
  std::vector<bool> is_reducing_;  // by rank
  std::vector<int> sends_;         // by rank
};

}  // namespace ddl::topology
