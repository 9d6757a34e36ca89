#pragma once

#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/topology/calibrate.hpp"
#include "ddl/topology/cost_model.hpp"

namespace ddl::collectives {

/// Measures each kind of way that exists between the ranks; rank r is on device r of `topology`.
///
/// Inside a host, one pair plays ping-pong with small messages: the latency is the minimum over several
/// rounds of the mean, less a step's overhead, which `cost` counts separately. Then all pairs that share the
/// links between two packages stream large messages at the same time. Between hosts the load is that of a
/// collective: ranks of all hosts play ping-pong in pairs at the same time (the lower quartile over the
/// rounds of the slowest pair's mean), then send large messages around rings of hosts, each rank in a ring of
/// its own (the best round).
///
/// Collective; ranks that are not measured wait. All ranks get the same figures. Takes tenths of a second,
/// longer over slow networks. Throws what collectives throw.
std::vector<topology::Measurement> probe(CommunicatorImpl& communicator, const topology::Topology& topology,
                                         const topology::CostModel& cost = {});

}  // namespace ddl::collectives
