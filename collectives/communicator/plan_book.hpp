#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "collectives/program/prepared_program.hpp"
#include "ddl/topology/planner.hpp"

namespace ddl::collectives {

/// What the user has to say about plans.
struct PlanWishes {
  topology::Mode mode = topology::Mode::explore;
  std::optional<topology::Decomposition> decomposition = {};
  /// Used as they are, in place of a choice; at most one for each collective on hosts, and one on devices.
  std::vector<topology::Plan> plans = {};
};

/// Calls of one class of sizes share a plan: `bytes` rounded up to one of four sizes an octave, from 256 on.
std::uint64_t size_class(std::uint64_t bytes) noexcept;

/// Throws `invalid_argument` unless the topology has a device for each rank.
void require_devices(const topology::Topology& topology, int ranks);

/// The plans of a communicator, each chosen when it is first asked for: a pure function of the topology and
/// the wishes, so that all ranks and all runs choose alike. Any thread; the ranks of a process share one.
class PlanBook : public std::enable_shared_from_this<PlanBook> {
 public:
  using Topology = std::shared_ptr<const topology::Topology>;

  /// For a job: rank r is on device r. `find_topology` is called once, when a plan or the topology is first
  /// asked for. Throws `invalid_argument` for wishes that do not fit `ranks`.
  PlanBook(int ranks, std::function<Topology()> find_topology, PlanWishes wishes);

  /// The plans of a communicator of the job, whose rank r is the job's rank `members[r]`: this book if they
  /// are all of its ranks in their order, else one that all who ask for the same members share as long as one
  /// of them keeps it. Modes hold for every book; a decomposition and given plans for those of as many ranks
  /// as the job has, in whatever order. Of the job's book, or any that came from it.
  std::shared_ptr<PlanBook> of_members(std::span<const int> members);

  /// The topology that plans are chosen for. Throws `invalid_argument` if it has fewer devices than ranks.
  Topology topology();
  /// Plans for another topology from now on. For start-up, before any rank has asked for a plan.
  void replace_topology(Topology topology);

  /// The plan for calls of `bytes` bytes; not for barriers. `wire`: see `topology::PlanRequest`. A given plan
  /// has it in the dimensions that have one, or else in all that go over a network.
  std::shared_ptr<const ChosenPlan> plan(topology::Collective collective, std::uint64_t bytes, DataType type,
                                         std::optional<DataType> wire = {});

 private:
  using Key = std::tuple<topology::Collective, std::uint64_t, DataType, std::optional<DataType>>;
  PlanBook(std::shared_ptr<PlanBook> job, topology::Placement placement);
  const topology::Topology& known_topology();
  topology::Plan choose(const Key& key);

  std::mutex mutex_;
  std::shared_ptr<PlanBook> job_;  // null: this is the job's
  topology::Placement placement_;  // device of each rank
  std::function<Topology()> find_topology_;
  PlanWishes wishes_;
  Topology topology_;
  std::optional<topology::Planner> planner_;
  std::map<Key, std::shared_ptr<const ChosenPlan>> plans_;
  std::map<topology::Placement, std::weak_ptr<PlanBook>> of_members_;  // in the job's
};

/// What of a plan's carriers is not what its bytes go through here, with the reason; for people.
std::vector<std::string> carrier_notes(const topology::Plan& plan, bool over_mpi);

/// The numbers of which the ranks take the greatest to find out whether they all have the same `value`.
std::array<std::int64_t, 2> comparison_of(std::uint64_t value) noexcept;
/// Whether all had the same, from the greatest of each.
bool are_equal(const std::array<std::int64_t, 2>& greatest) noexcept;

}  // namespace ddl::collectives
