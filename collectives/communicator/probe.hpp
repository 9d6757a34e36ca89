#pragma once

#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/topology/calibrate.hpp"
#include "ddl/topology/cost_model.hpp"

namespace ddl::collectives {

/// Measures each kind of way that exists between the ranks, rank r on device r of `topology`. Inside a host
/// one pair plays ping-pong with small messages (the least of several rounds' means, less a step's overhead,
/// which `cost` counts by itself); then all pairs that share the links between two packages stream large ones
/// together. Between hosts all is as in a collective: ranks of all hosts play ping-pong in pairs at the same
/// time (the lower quartile of the slowest pair's means), then send large messages around rings of hosts,
/// each rank in one of its own (the best round). Collective; the ranks that are not measured wait. All get
/// the same figures. Takes tenths of a second, longer over slow networks. Errors: as collectives'.
std::vector<topology::Measurement> probe(CommunicatorImpl& communicator, const topology::Topology& topology,
                                         const topology::CostModel& cost = {});

}  // namespace ddl::collectives
