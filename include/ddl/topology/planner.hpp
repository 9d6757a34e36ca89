#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"

namespace ddl::topology {

/// What a plan is wanted for.
struct PlanRequest {
  Collective collective = Collective::all_reduce;  ///< Any but barrier.
  std::uint64_t bytes = 0;  ///< Size of a rank's buffer; of all pieces for reduce_scatter and all_gather.
  DataType type = DataType::f32;                    ///< Type of the elements.
  Mode mode = Mode::explore;                        ///< The family of plans to choose from.
  std::optional<Decomposition> decomposition = {};  ///< If given, the only grid to consider.
  std::optional<int> chunks = {};                   ///< If given, the only number of chunks, 1 to 64.
  /// The type in which sums of f32 travel between hosts: bf16 or f16; none: f32. For all_reduce and
  /// reduce_scatter.
  std::optional<DataType> wire = {};
  bool nccl = true;  ///< Whether ranks on GPUs can use NCCL. Else modes n and b fall back, with a note.
};

/// Chooses plans for ranks placed on a topology. A pure function of its arguments: equal ones give equal
/// plans on every rank. Caches routes between calls; one thread at a time.
///
/// For a topology with carriers between its GPUs (`Topology::carriers`), it chooses plans that a
/// DeviceCommunicator executes: all ranks at once by one carrier, or the ranks of a host by one and the hosts
/// by another, in chunks. The carriers' calls cost what the cost model says, and plans are compared by
/// prediction alone. A mode or decomposition that no carrier can execute is ignored, with a note.
class Planner {
 public:
  /// `placement`: the device of each rank. Throws `invalid_argument` as `require_valid` does. `topology` must
  /// outlive the planner.
  Planner(const Topology& topology, Placement placement, CostModel cost = {});
  ~Planner();
  /// Leaves the other planner empty: it can only be assigned to or destroyed.
  Planner(Planner&&) noexcept;
  /// Likewise.
  Planner& operator=(Planner&&) noexcept;

  /// The plan with the least predicted time; among equal ones a plan along the hosts, then one with the
  /// fewest dimensions, then with the fewest chunks. Up to 64 ranks, plans whose predictions are within 30%
  /// of the least are compared by simulation, as many as some ten milliseconds allow (a tenth of a second
  /// above 16 ranks), and plans over TCP between hosts of CPUs by `CostModel::tcp_slowdown`, too; the result
  /// may thus have a higher prediction than the first of `candidates`. Takes up to 50 ms for 16 ranks, half a
  /// second for 64 and for 4,096, and 20 seconds for 65,536. Throws `invalid_argument` for a
  /// decomposition of another number of ranks, chunks outside of 1 to 64, a wire that does not fit the
  /// request, and a barrier.
  Plan choose(const PlanRequest& request);

  /// The plans that `choose` compares, least predicted time first; at most `most`. Up to 64 ranks: the rank
  /// orders "as placed" and "by host"; every ordered factorisation of the number of ranks, and for unequal
  /// hosts those of the number of hosts above a ragged dimension; every algorithm in each dimension; 1 to 64
  /// chunks by powers of two (mode mpi: one). For more ranks: the best of a search with a bounded number of
  /// partial plans, in mode explore together with those of modes rings, scatter_gather and mpi. Throws as
  /// `choose` does.
  std::vector<Plan> candidates(const PlanRequest& request, std::size_t most = SIZE_MAX);

  /// Whether a DeviceCommunicator with the topology's carriers can execute the plan; true if the topology has
  /// none.
  [[nodiscard]] bool executes(const Plan& plan);

  /// Sets predicted_us, phase_us, bound_us and topology_hash of a plan. Throws `invalid_argument` for an
  /// invalid plan or one for another number of ranks.
  void predict(Plan& plan);

  /// The number of messages of all ranks in all chunks, without building a schedule; verifying and simulating
  /// cost in proportion to it. Approximate if pieces of a reduce_scatter or all_gather are not contiguous.
  /// The plan must be valid, and for as many ranks as the placement has.
  [[nodiscard]] double transfers(const Plan& plan);

  /// The topology that this was made with.
  [[nodiscard]] const Topology& topology() const noexcept;
  /// The device of each rank.
  [[nodiscard]] const Placement& placement() const noexcept;
  /// The cost model that predictions use.
  [[nodiscard]] const CostModel& cost() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl::topology
