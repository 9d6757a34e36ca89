#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "collectives/prepared_program.hpp"
#include "ddl/topology/planner.hpp"

namespace ddl::collectives {

/// What the user has to say about plans.
struct PlanWishes {
  topology::Mode mode = topology::Mode::explore;
  std::optional<topology::Decomposition> decomposition = {};
  /// Used as they are, in place of a choice; at most one for each collective.
  std::vector<topology::Plan> plans = {};
};

/// A plan and what is worth keeping of it.
struct ChosenPlan {
  topology::Plan plan;
  std::uint64_t hash = 0;
  std::shared_ptr<const PlanNames> names;
};

/// Calls of one class of sizes share a plan: `bytes` rounded up to one of four sizes an octave, from 256 on.
std::uint64_t size_class(std::uint64_t bytes) noexcept;

/// Throws `invalid_argument` unless the topology has a device for each rank.
void require_devices(const topology::Topology& topology, int ranks);

/// The plans of a job, each chosen when it is first asked for: a pure function of the topology and the
/// wishes, so that all ranks and all runs choose alike. Rank r is on device r. Any thread; the ranks of a
/// process share one.
class PlanBook {
 public:
  using Topology = std::shared_ptr<const topology::Topology>;

  /// `find_topology` is called once, when a plan or the topology is first asked for. Throws
  /// `invalid_argument` for wishes that do not fit `ranks`.
  PlanBook(int ranks, std::function<Topology()> find_topology, PlanWishes wishes);

  /// The topology that plans are chosen for. Throws `invalid_argument` if it has fewer devices than ranks.
  Topology topology();
  /// Plans for another topology from now on. For start-up, before any rank has asked for a plan.
  void replace_topology(Topology topology);

  /// The plan for calls of `bytes` bytes; not for barriers.
  std::shared_ptr<const ChosenPlan> plan(topology::Collective collective, std::uint64_t bytes, DataType type);

 private:
  using Key = std::tuple<topology::Collective, std::uint64_t, DataType>;
  const topology::Topology& known_topology();
  topology::Plan choose(const Key& key);

  std::mutex mutex_;
  int ranks_;
  std::function<Topology()> find_topology_;
  PlanWishes wishes_;
  Topology topology_;
  std::optional<topology::Planner> planner_;
  std::map<Key, std::shared_ptr<const ChosenPlan>> plans_;
};

}  // namespace ddl::collectives
