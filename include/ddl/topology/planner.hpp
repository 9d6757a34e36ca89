#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"

namespace ddl::topology {

struct PlanRequest {
  Collective collective = Collective::all_reduce;  ///< Not barrier.
  std::uint64_t bytes = 0;
  DataType type = DataType::f32;
  Mode mode = Mode::explore;
  std::optional<Decomposition> decomposition = {};  ///< Only this one.
  std::optional<int> chunks = {};                   ///< Only so many.
  /// What sums of f32 travel as between hosts: bf16 or f16. Of an all_reduce or reduce_scatter.
  std::optional<DataType> wire = {};
  bool nccl = true;  ///< NCCL can be used between ranks on GPUs. Else modes n and b fall back, with a note.
};

/// Chooses plans for ranks placed on a topology. If that says what carries collectives between its GPUs
/// (`Topology::carriers`), these are the plans that a DeviceCommunicator executes: all ranks at once by one
/// carrier, or the ranks of a host by one and the hosts by another, in chunks. Calls of the carriers then
/// cost what the cost model says; plans are told apart by prediction alone, and what a mode or decomposition
/// asks for that no carrier can do is left out, with a note.
/// A pure function of its arguments: equal ones give equal
/// plans on every rank. Keeps what it learns of routes from one call to the next; one thread at a time.
class Planner {
 public:
  /// Throws `invalid_argument` as `require_valid` does. The topology must outlive the planner.
  Planner(const Topology& topology, Placement placement, CostModel cost = {});
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  /// The plan with the least predicted time; of equal ones one along the hosts, then with the fewest
  /// dimensions, then chunks. Up to 64 ranks, plans whose predictions are within 12% of the least are told
  /// apart by simulation, as many as a few milliseconds (tens of them above 16 ranks) allow; the choice may
  /// thus have a higher prediction than the first candidate. Below 10 ms up to 16 ranks, a second for 4,096,
  /// ten for 65,536. Throws `invalid_argument`: a decomposition of another number
  /// of ranks, chunks out of 1 to 64, a barrier.
  Plan choose(const PlanRequest& request);

  /// Every plan that `choose` compares, least predicted time first. Up to 64 ranks that is: rank orders as
  /// placed and by host; every ordered factorisation of the ranks, and with unequal hosts those of
  /// the hosts above a ragged dimension; every algorithm in each dimension; 1 to 64 chunks by powers of two
  /// (mode mpi: one). For more ranks, the best of a search with a bounded number of partial plans, in mode
  /// explore together with those of modes rings, scatter_gather and mpi. `most` limits how many
  /// are returned.
  std::vector<Plan> candidates(const PlanRequest& request, std::size_t most = SIZE_MAX);

  /// Whether a DeviceCommunicator with the topology's carriers can execute the plan; true where these are not
  /// known.
  [[nodiscard]] bool executes(const Plan& plan);

  /// Fills in predicted_us, phase_us, bound_us and topology_hash of any valid plan for these ranks.
  void predict(Plan& plan);

  /// `to_text` of a valid plan for these ranks, predicted here, with the link that limits it.
  std::string explain(const Plan& plan);

  [[nodiscard]] const Topology& topology() const noexcept;
  [[nodiscard]] const Placement& placement() const noexcept;
  [[nodiscard]] const CostModel& cost() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl::topology
