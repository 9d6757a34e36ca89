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

/// A rank that is slower: its sends' overhead, reductions and start are stretched.
struct Straggler {
  int rank = 0;
  double factor = 1;    ///< On step overhead and reductions; at least 1.
  double start_us = 0;  ///< When it joins.

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

struct SimulationOptions {
  CostModel cost = {};
  std::size_t element_bytes = 4;
  /// Each transfer's latency is stretched by a factor drawn evenly from [1, 1 + jitter).
  double jitter = 0;
  std::uint64_t seed = 1;
  std::vector<Straggler> stragglers = {};
  bool keep_events = false;  ///< Fill in `Simulation::events`.
};

/// One step of one rank, or a transfer as its sender (a send) and its receiver (a receive) see it.
struct SimulatedEvent {
  int rank = 0;
  std::uint32_t step = 0;  ///< Index into the rank's program.
  double start_us = 0;
  double end_us = 0;
};

struct SimulatedPhase {
  int phase = 0;            ///< `Step::phase`
  double start_us = 0;      ///< The first step's start, over all ranks and chunks.
  double end_us = 0;        ///< The last step's end.
  std::uint64_t bytes = 0;  ///< Sent by all ranks.
};

struct ChannelUse {
  Channel channel = 0;
  std::uint64_t bytes = 0;
  double utilisation = 0;  ///< bytes / (bandwidth * total time); of a half-duplex link both directions count.
};

struct Simulation {
  double total_us = 0;  ///< From 0 to the end of the last step.
  std::uint64_t transfers = 0;
  std::vector<SimulatedPhase> phases;  ///< Ascending.
  std::vector<ChannelUse> channels;    ///< Those that were used, ascending.
  /// The chain of steps that ends last, from its start on: each starts when the one before it ends. A send
  /// that only kept its rank from issuing the next one is in it with the time of its issue alone.
  std::vector<SimulatedEvent> critical;
  std::vector<SimulatedEvent> events;  ///< By rank and step; empty unless `keep_events`.
};

/// Runs a schedule on a virtual clock.
///
/// A transfer starts when its send and its receive may both start (`Program`), all earlier ones of its stream
/// have left the sender, and the sender is free to issue it: issuing takes `step_overhead`, one at a time,
/// in list order among those that may start. Then its bytes flow along `Topology::route` between the ranks'
/// devices; flows share each channel (both of a half-duplex link) max-min fairly. The send is complete when
/// the last byte has left; the receive one latency of the route later, and a receive_reduce after `bytes /
/// reduction` more. In memory (`is_in_memory`) half of the bytes of a receive_reduce count, and of a receive
/// of what the rank has sent the same peer. The transfers of a run (`Program`) start together, once all of
/// them may, and its joined steps have no latency and no reduction of their own. `reduce` and `copy` take
/// `bytes / reduction`; `finish` nothing. A ring of n ranks with nothing shared thus takes 2(n-1)(alpha + N/n
/// beta) + gamma N (1 - 1/n), alpha the overhead and latency: DESIGN's closed form.
///
/// Events of one instant (1e-9 of the time) are handled together, so that equal ranks cost little: a
/// 1,024-rank all-reduce with a few million transfers takes seconds and some hundred bytes a transfer. Where
/// hundreds of flows change one another's rates with each start and end, rates are brought up to date late,
/// by at most 0.1% of the duration of a transfer. Deterministic for a seed.
///
/// Errors: `invalid_argument` for a placement of another number of ranks, options out of range, and a
/// schedule that deadlocks or does not match (naming the ranks that wait; `verify` says more).
Simulation simulate(const Topology& topology, const Placement& placement, const Schedule& schedule,
                    const SimulationOptions& options = {});

/// Simulates many schedules of the same ranks: keeps their routes, which a small schedule spends most of its
/// time on, from one to the next. One thread at a time.
class Simulator {
 public:
  /// Throws `invalid_argument` as `require_valid` does. The topology must outlive the simulator.
  Simulator(const Topology& topology, const Placement& placement);
  ~Simulator();
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;

  /// As `simulate`.
  Simulation run(const Schedule& schedule, const SimulationOptions& options = {});

 private:
  std::unique_ptr<RouteTable> routes_;
};

/// In the Trace Event Format that Perfetto and chrome://tracing read: one track a rank and direction, colours
/// by phase, times in us. `simulation` needs its events.
std::string chrome_trace(const Schedule& schedule, const Simulation& simulation,
                         std::span<const Phase> phases);

}  // namespace ddl::topology
