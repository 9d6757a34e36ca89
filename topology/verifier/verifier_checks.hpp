#pragma once

#include <string>
#include <vector>

#include "topology/program/streams.hpp"

namespace ddl::topology::verification {

/// An order in which the steps can happen: local steps, sends with their receives, and runs by their first
/// step, with the sends that they take. Where there is none, `problem` describes a cycle of steps that wait
/// for each other.
struct Order {
  std::vector<StepId> steps;
  std::string problem;
};

/// Why a cycle is what a deadlock is: make one node of each send with its receive, and of each run with all
/// sends that it takes. A node can happen once all nodes before it have: those that its steps conflict with
/// (on the sender or on the receiver), and the transfers before it in its streams.
///
/// Without cycles, of the nodes that have not happened one always has nothing before it that has not, and it
/// needs nothing else; so every order of progress goes on to the end, whichever is taken. On a cycle no node
/// ever happens. With buffers, a send may be over before its receive has started; with B of them, send k + B
/// of a stream waits for receive k. Both relations are contained in the one above (the order of the stream
/// has k before k + B), so buffers remove cycles and never add one.
Order order_steps(const StepNumbers& steps, const Streams& streams);

/// Runs matched steps on symbols, in an order that `order_steps` gave, and looks at what each rank ends with.
/// Returns what is wrong, or nothing.
std::string check_content(const StepNumbers& steps, const Streams& streams, const std::vector<StepId>& order);

}  // namespace ddl::topology::verification
