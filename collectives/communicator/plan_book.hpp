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

struct PlanWishes {
  topology::Mode mode = topology::Mode::explore;
  std::optional<topology::Decomposition> decomposition = {};
  /// Plans to use as given: at most one per collective for hosts, and one for devices.
  std::vector<topology::Plan> plans = {};
};

/// Rounds `bytes` up to one of four sizes per octave, from 256 on. Calls of one size class share a plan.
std::uint64_t size_class(std::uint64_t bytes) noexcept;

/// Throws `invalid_argument` unless the topology has a device for each rank.
void require_devices(const topology::Topology& topology, int ranks);

/// The plans of a communicator, chosen when they are first needed. A choice depends only on the topology and
/// the wishes, so all ranks and all runs choose alike. Thread-safe; the ranks of a process share a book.
class PlanBook : public std::enable_shared_from_this<PlanBook> {
 public:
  using Topology = std::shared_ptr<const topology::Topology>;

  /// The book of a job: rank r is on device r. `find_topology` is called once, when the topology is first
  /// needed. Throws `invalid_argument` for wishes that do not fit `ranks`.
  PlanBook(int ranks, std::function<Topology()> find_topology, PlanWishes wishes);

  /// The book of a communicator whose rank r is the job's rank `members[r]`: this book if these are all of
  /// its ranks in order, else one that all callers with the same members share while any of them keeps it.
  /// The mode applies to every book; a decomposition and given plans apply to books with as many ranks as the
  /// job, in any order. May be called on any book of the job.
  std::shared_ptr<PlanBook> of_members(std::span<const int> members);

  /// The topology that plans are chosen for. Throws `invalid_argument` if it has fewer devices than the job
  /// has ranks.
  Topology topology();
  /// Chooses later plans for another topology. For start-up, before any rank has asked for a plan.
  void replace_topology(Topology topology);

  /// The plan for calls of `bytes` bytes; not for barriers. `wire`: see `topology::PlanRequest`. In a given
  /// plan it applies to the dimensions that have a wire type, or else to all that cross a network.
  std::shared_ptr<const ChosenPlan> plan(topology::Collective collective, std::uint64_t bytes, DataType type,
                                         std::optional<DataType> wire = {});

 private:
  using Key = std::tuple<topology::Collective, std::uint64_t, DataType, std::optional<DataType>>;
  PlanBook(std::shared_ptr<PlanBook> job, topology::Placement placement);
  const topology::Topology& known_topology();
  topology::Plan choose(const Key& key);

  std::mutex mutex_;
  std::shared_ptr<PlanBook> job_;  // null in the job's book
  topology::Placement placement_;  // device of each rank
  std::function<Topology()> find_topology_;
  PlanWishes wishes_;
  Topology topology_;
  std::optional<topology::Planner> planner_;
  std::map<Key, std::shared_ptr<const ChosenPlan>> plans_;
  std::map<topology::Placement, std::weak_ptr<PlanBook>> of_members_;  // only in the job's book
};

/// Notes for users on the plan's carriers that are replaced here, with reasons.
std::vector<std::string> carrier_notes(const topology::Plan& plan, bool over_mpi);

/// Numbers whose maxima over all ranks show whether the ranks have the same `value`.
std::array<std::int64_t, 2> comparison_of(std::uint64_t value) noexcept;
/// Whether all ranks had the same value; `greatest`: the maxima.
bool are_equal(const std::array<std::int64_t, 2>& greatest) noexcept;

}  // namespace ddl::collectives
