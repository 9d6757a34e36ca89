#pragma once

#include <string>
#include <vector>

#include "topology/program/streams.hpp"

namespace ddl::topology::verification {

/// An order in which the steps can happen: local steps, sends with their receives, and runs (by their first
/// step) with the sends that they take. If there is none, `problem` describes a cycle.
struct Order {
  std::vector<StepId> steps;
  std::string problem;
};

/// Why exactly a cycle is a deadlock: make one node of each send with its receive, and of each run with all
/// sends that it takes. A node can happen once all nodes before it have: those that its steps conflict with,
/// on the sender or on the receiver, and the earlier transfers of its streams.
///
/// Without a cycle, one of the nodes that have not happened always waits for none of the others, so every
/// order of progress reaches the end. A node on a cycle never happens. With buffers, a send may complete
/// before its receive starts; with B buffers, send k + B of a stream waits for receive k. Both relations are
/// contained in the one above (in a stream, k is before k + B), so buffers never add a cycle.
Order order_steps(const StepNumbers& steps, const Streams& streams);

/// Runs matched steps on symbols in an order from `order_steps`, and checks what each rank ends with. Returns
/// what is wrong, or an empty text.
std::string check_content(const StepNumbers& steps, const Streams& streams, const std::vector<StepId>& order);

}  // namespace ddl::topology::verification
