#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The index of the node with this name; fails the test and returns -1 if there is none.
inline int find(const Topology& topology, const std::string& name) {
  const auto& nodes = topology.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].name == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no node " << name;
  return -1;
}

/// The names of the nodes on the route between two nodes, including both; "broken" where links do not join.
inline std::vector<std::string> route_names(const Topology& topology, const std::string& from,
                                            const std::string& to) {
  int at = find(topology, from);
  std::vector<std::string> result{from};
  for (const Channel channel : topology.route(at, find(topology, to))) {
    const Link& link = topology.links().at(static_cast<std::size_t>(link_of(channel)));
    const bool is_forward = channel % 2 == 0;
    if ((is_forward ? link.from : link.to) != at) return {"broken"};
    at = is_forward ? link.to : link.from;
    result.push_back(topology.nodes().at(static_cast<std::size_t>(at)).name);
  }
  return result;
}

/// Describes the error that a call throws: "code: message", or "nothing".
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return "nothing";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' does not contain '" << part << "'";
}

}  // namespace ddl::topology
