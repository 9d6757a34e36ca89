#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

class RouteTable;

/// A rank that is slower or starts later than the others.
struct Straggler {
  int rank = 0;         ///< Its number.
  double factor = 1;    ///< Multiplies its step overhead and reduction times; at least 1.
  double start_us = 0;  ///< When it starts, in us; at least 0.

  /// Memberwise equality.
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

/// Settings of a simulation.
struct SimulationOptions {
  CostModel cost = {};            ///< Costs besides the links' latency and bandwidth.
  std::size_t element_bytes = 4;  ///< Bytes of an element, 1 to 1024; narrow messages use their wire's.
  /// Each transfer's latency is multiplied by a factor drawn uniformly from [1, 1 + jitter).
  double jitter = 0;
  std::uint64_t seed = 1;                  ///< Of the jitter.
  std::vector<Straggler> stragglers = {};  ///< Of several for one rank, the greatest factor and start count.
  bool keep_events = false;                ///< Fill in `Simulation::events`.
};

/// One step of one rank. A transfer is two events: a send and a receive.
struct SimulatedEvent {
  int rank = 0;            ///< The rank whose step it is.
  std::uint32_t step = 0;  ///< Index into the rank's program.
  double start_us = 0;     ///< Start, in us of the virtual clock.
  double end_us = 0;       ///< End.
};

/// The steps of one phase, over all ranks and chunks.
struct SimulatedPhase {
  int phase = 0;            ///< `Step::phase`.
  double start_us = 0;      ///< Start of the first step.
  double end_us = 0;        ///< End of the last step.
  std::uint64_t bytes = 0;  ///< Sent by all ranks together.
};

/// What one direction of a link carried.
struct ChannelUse {
  Channel channel = 0;      ///< The link and direction.
  std::uint64_t bytes = 0;  ///< Bytes of all transfers over it.
  /// Share of the total time for which the transfers occupied it, 0 to 1; both directions count for a
  /// half-duplex link.
  double utilisation = 0;
};

/// The result of a simulation.
struct Simulation {
  double total_us = 0;                 ///< The end of the last step, in us from 0.
  std::uint64_t transfers = 0;         ///< Number of messages.
  std::vector<SimulatedPhase> phases;  ///< By number.
  std::vector<ChannelUse> channels;    ///< The channels that were used, by number.
  /// The critical path: the chain of steps that ends last, in order; each starts when the one before it ends.
  /// A send that only delayed its rank's next send is in it with the time of its issue only.
  std::vector<SimulatedEvent> critical;
  std::vector<SimulatedEvent> events;  ///< All, by rank and step; empty unless `keep_events`.
};

/// Runs a schedule on a virtual clock.
///
/// A transfer starts when its send and its receive may both start (see `Program`), all earlier transfers of
/// its stream have left the sender, and the sender is free to issue it: issuing takes `step_overhead`, one at
/// a time, in list order among the transfers that may start. Then its bytes flow along `Topology::route`
/// between the ranks' devices. Flows share each channel (both directions of a half-duplex link together)
/// max-min fairly. The send is complete when the last byte has left; the receive one latency of the route
/// later; a receive_reduce after a further `bytes / reduction`. In memory (`is_in_memory`), half of the bytes
/// count for a receive_reduce, and for a receive of a range that the rank sent to the same peer before. The
/// transfers of a run (see `Program`) start together, once all of them may; its joined steps have no latency
/// and no reduction of their own. `reduce` and `copy` take `bytes / reduction`; `finish` takes no time. A
/// ring of n ranks that share no link thus takes 2(n-1)(alpha + N/n beta) + gamma N (1 - 1/n), with alpha the
/// overhead and latency per message, beta us per byte of the links and gamma us per byte of reduction.
///
/// Events within 1e-9 of the time are handled as one instant, so that equal ranks cost little: a 1,024-rank
/// all-reduce with a few million transfers takes seconds and some hundred bytes per transfer. Where hundreds
/// of flows change one another's rates with each start and end, rates are updated late, by at most 0.1% of
/// the duration of a transfer. Deterministic for a seed.
///
/// Throws `invalid_argument` for a placement of another number of ranks or that `require_valid` refuses,
/// options out of range, and a schedule that deadlocks or does not match, naming the ranks that wait
/// (`verify` says more).
Simulation simulate(const Topology& topology, const Placement& placement, const Schedule& schedule,
                    const SimulationOptions& options = {});

/// Simulates many schedules of the same ranks. Keeps their routes, which take most of a small schedule's
/// time. One thread at a time.
class Simulator {
 public:
  /// Throws `invalid_argument` as `require_valid` does. `topology` must outlive the simulator.
  Simulator(const Topology& topology, const Placement& placement);
  ~Simulator();
  /// Leaves the other simulator empty: it can only be assigned to or destroyed.
  Simulator(Simulator&&) noexcept;
  /// Likewise.
  Simulator& operator=(Simulator&&) noexcept;

  /// Simulates a schedule as `simulate` does, with its errors.
  Simulation run(const Schedule& schedule, const SimulationOptions& options = {});

 private:
  std::unique_ptr<RouteTable> routes_;
};

}  // namespace ddl::topology
