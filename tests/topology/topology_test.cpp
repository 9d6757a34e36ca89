#include "ddl/topology/topology.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <regex>
#include <set>
#include <tuple>

#include "topology/graph_support.hpp"
#include "topology/random_graph.hpp"

namespace ddl::topology {
namespace {

using Names = std::vector<std::string>;

/// Two hosts with a package, two CPUs and a NIC each, and a network.
struct Parts {
  Names hosts = {"a", "b"};
  std::vector<Node> nodes = {{"a/package", NodeKind::package, 0}, {"a/cpu0", NodeKind::cpu, 0},
                             {"a/cpu1", NodeKind::cpu, 0},        {"a/nic", NodeKind::nic, 0},
                             {"b/cpu0", NodeKind::cpu, 1},        {"b/nic", NodeKind::nic, 1},
                             {"switch", NodeKind::network, -1}};
  std::vector<Link> links = {{0, 1, LinkKind::memory, 10, 0.1},  {0, 2, LinkKind::memory, 10, 0.1},
                             {0, 3, LinkKind::pcie, 12, 0.5},    {4, 5, LinkKind::pcie, 12, 0.5},
                             {3, 6, LinkKind::network, 12.5, 1}, {5, 6, LinkKind::network, 12.5, 1}};
  Topology make() const { return {hosts, nodes, links}; }
};

// Plans would be made for links that do not exist, or in the wrong direction.
TEST(Topology, HasWhatItWasGiven) {
  const Parts parts;
  const Topology topology = parts.make();
  EXPECT_EQ(topology.hosts(), parts.hosts);
  EXPECT_EQ(topology.nodes(), parts.nodes);
  EXPECT_EQ(topology.links(), parts.links);
  EXPECT_EQ(topology.devices(), (std::vector<int>{1, 2, 4}));
  const auto at_switch = topology.links_at(6);
  EXPECT_EQ(std::vector<int>(at_switch.begin(), at_switch.end()), (std::vector<int>{4, 5}));
  EXPECT_EQ(topology.other_end(4, 6), 3);
  EXPECT_EQ(topology, parts.make());
  Parts other;
  other.links[2].bandwidth = 13;
  EXPECT_NE(topology, other.make());
  EXPECT_NE(topology.hash(), other.make().hash());
  EXPECT_EQ(topology.hash(), parts.make().hash());
}

TEST(Topology, RoutesOverPackageNicAndNetwork) {
  const Topology topology = Parts{}.make();
  EXPECT_EQ(route_names(topology, "a/cpu0", "a/cpu1"), (Names{"a/cpu0", "a/package", "a/cpu1"}));
  EXPECT_EQ(route_names(topology, "a/cpu0", "b/cpu0"),
            (Names{"a/cpu0", "a/package", "a/nic", "switch", "b/nic", "b/cpu0"}));
  EXPECT_EQ(route_names(topology, "b/cpu0", "a/cpu1"),
            (Names{"b/cpu0", "b/nic", "switch", "a/nic", "a/package", "a/cpu1"}));
  EXPECT_EQ(topology.route(1, 4), (std::vector<Channel>{1, 4, 8, 11, 7}));
  EXPECT_TRUE(topology.route(4, 4).empty());
  EXPECT_EQ(route_names(topology, "switch", "a/cpu0"), (Names{"switch", "a/nic", "a/package", "a/cpu0"}));
  EXPECT_EQ(route_names(topology, "a/cpu0", "a/nic"), (Names{"a/cpu0", "a/package", "a/nic"}));
}

TEST(Topology, RouteRefusesWhatIsNoNode) {
  const Topology topology = Parts{}.make();
  expect_contains(error_of([&] { static_cast<void>(topology.route(0, 7)); }),
                  "found node 7, expected 0 to 6");
  expect_contains(error_of([&] { static_cast<void>(topology.route(-1, 0)); }),
                  "invalid_argument: route: found node -1");
  expect_contains(error_of([&] { static_cast<void>(topology.links_at(7)); }), "found node 7");
}

// Routes would go through a NIC between two sockets, or through another rank's GPU.
TEST(Topology, NothingPassesDevicesNorNicsInsideAHost) {
  const Topology topology({"a"},
                          {{"p0", NodeKind::package, 0},
                           {"p1", NodeKind::package, 0},
                           {"nic", NodeKind::nic, 0},
                           {"g0", NodeKind::gpu, 0},
                           {"g1", NodeKind::gpu, 0},
                           {"g2", NodeKind::gpu, 0}},
                          {{0, 1, LinkKind::socket, 10, 9},
                           {0, 2, LinkKind::pcie, 10, 0.1},
                           {1, 2, LinkKind::pcie, 10, 0.1},
                           {0, 3, LinkKind::pcie, 10, 0.1},
                           {1, 4, LinkKind::pcie, 10, 0.1},
                           {3, 5, LinkKind::nvlink, 10, 0.1},
                           {4, 5, LinkKind::nvlink, 10, 0.1},
                           {1, 5, LinkKind::pcie, 10, 0.1}});
  EXPECT_EQ(route_names(topology, "g0", "g1"), (Names{"g0", "p0", "p1", "g1"}));
  EXPECT_EQ(route_names(topology, "g0", "g2"), (Names{"g0", "g2"}));
}

TEST(Topology, LatencyThenWidthThenLinksThenIndices) {
  // Four routes from g0 to g1 over fabrics; all but the first take 2 us.
  const std::vector<Node> nodes = {{"g0", NodeKind::gpu, 0},      {"g1", NodeKind::gpu, 0},
                                   {"slow", NodeKind::fabric, 0}, {"thin", NodeKind::fabric, 0},
                                   {"x", NodeKind::fabric, 0},    {"y", NodeKind::fabric, 0},
                                   {"z", NodeKind::fabric, 0}};
  std::vector<Link> links = {{0, 2, LinkKind::pcie, 99, 1}, {2, 1, LinkKind::pcie, 99, 1.001},
                             {0, 3, LinkKind::pcie, 99, 1}, {3, 1, LinkKind::pcie, 5, 1},
                             {0, 4, LinkKind::pcie, 10, 1}, {4, 5, LinkKind::pcie, 10, 0},
                             {5, 1, LinkKind::pcie, 10, 1}};
  EXPECT_EQ(route_names({{"a"}, nodes, links}, "g0", "g1"), (Names{"g0", "x", "y", "g1"}));
  links.push_back({6, 1, LinkKind::pcie, 10, 1});
  links.push_back({0, 6, LinkKind::pcie, 10, 1});
  EXPECT_EQ(route_names({{"a"}, nodes, links}, "g0", "g1"), (Names{"g0", "z", "g1"}));
  links.push_back({4, 1, LinkKind::pcie, 10, 1});  // link 4 comes before link 8
  EXPECT_EQ(route_names({{"a"}, nodes, links}, "g0", "g1"), (Names{"g0", "x", "g1"}));
}

// GPUs of a host that are joined only by the network (an NVLink switch between hosts) would have no route.
TEST(Topology, AHostsOwnDevicesMayMeetOverTheNetwork) {
  const Topology topology(
      {"a"},
      {{"g0", NodeKind::gpu, 0},
       {"g1", NodeKind::gpu, 0},
       {"nic", NodeKind::nic, 0},
       {"net", NodeKind::network, -1}},
      {{0, 2, LinkKind::pcie, 10, 1}, {2, 3, LinkKind::network, 10, 1}, {1, 3, LinkKind::nvlink, 10, 1}});
  EXPECT_EQ(route_names(topology, "g0", "g1"), (Names{"g0", "nic", "net", "g1"}));
}

TEST(Topology, HostsMayBeJoinedByACable) {
  Parts parts;
  parts.nodes.pop_back();
  parts.links.resize(4);
  parts.links.push_back({3, 5, LinkKind::network, 12.5, 1});
  EXPECT_EQ(route_names(parts.make(), "a/cpu0", "b/cpu0"),
            (Names{"a/cpu0", "a/package", "a/nic", "b/nic", "b/cpu0"}));
}

struct BadCase {
  const char* what;
  std::function<void(Parts&)> spoil;
  std::string message;
};

// Plans would be made for an impossible graph.
TEST(Topology, RefusesWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<BadCase> cases = {
      {"no device",
       [](Parts& p) {
         for (auto& n : p.nodes)
           if (is_device(n.kind)) n.kind = NodeKind::fabric;
       },
       "nodes: found no device"},
      {"host twice", [](Parts& p) { p.hosts[1] = p.hosts[0]; },
       "hosts[1]: found 'a' again, expected a name unlike hosts[0]"},
      {"host unnamed", [](Parts& p) { p.hosts[1].clear(); }, "hosts[1]: found 0 characters"},
      {"name twice", [](Parts& p) { p.nodes[2].name = p.nodes[1].name; },
       "nodes[2].name: found 'a/cpu0' again, expected a name unlike nodes[1]"},
      {"name empty", [](Parts& p) { p.nodes[2].name.clear(); }, "nodes[2].name: found 0 characters"},
      {"name long", [](Parts& p) { p.nodes[2].name.assign(256, 'x'); },
       "nodes[2].name: found 256 characters"},
      {"name odd", [](Parts& p) { p.nodes[2].name[1] = '\n'; },
       "nodes[2].name: found byte 0x0a, expected printable ASCII"},
      {"no host", [](Parts& p) { p.nodes[1].host = -1; }, "nodes[1].host: found no host"},
      {"which host", [](Parts& p) { p.nodes[1].host = 2; },
       "nodes[1].host: found host 2, expected one of the 2 hosts"},
      {"network in a host", [](Parts& p) { p.nodes[6].host = 0; },
       "nodes[6].host: found host 0, expected no host"},
      {"from", [](Parts& p) { p.links[1].from = -1; },
       "links[1].from: found node -1, expected one of the 7 nodes"},
      {"to", [](Parts& p) { p.links[1].to = 7; }, "links[1].to: found node 7"},
      {"itself", [](Parts& p) { p.links[1].to = 0; }, "links[1].to: found 'a/package' at both ends"},
      {"twice",
       [](Parts& p) {
         p.links.push_back({1, 0, LinkKind::memory, 1, 1});
       },
       "links[6]: found a second memory link between 'a/cpu0' and 'a/package'"},
      {"zero", [](Parts& p) { p.links[2].bandwidth = 0; },
       "links[2].bandwidth: found 0, expected a number above 0"},
      {"negative", [](Parts& p) { p.links[2].bandwidth = -3; }, "links[2].bandwidth: found -3"},
      {"nan", [=](Parts& p) { p.links[2].bandwidth = nan; }, "links[2].bandwidth: found nan"},
      {"infinite", [=](Parts& p) { p.links[2].bandwidth = infinity; }, "links[2].bandwidth: found inf"},
      {"huge", [](Parts& p) { p.links[2].bandwidth = 1e7; },
       "expected a number above 0 and at most 1000000 (GB/s)"},
      {"latency", [](Parts& p) { p.links[2].latency = -0.5; },
       "links[2].latency: found -0.5, expected a number from 0"},
      {"latency nan", [=](Parts& p) { p.links[2].latency = nan; }, "links[2].latency: found nan"},
      {"latency huge", [](Parts& p) { p.links[2].latency = 2e6; }, "links[2].latency: found 2000000"},
      {"apart", [](Parts& p) { p.links.pop_back(); },
       "links: found no way from 'a/cpu0' to 'b/cpu0', expected every device"},
      {"apart inside", [](Parts& p) { p.links.erase(p.links.begin()); }, "links: found no way from 'a/cpu0'"},
      {"too many hosts", [](Parts& p) { p.hosts.resize(Topology::most_nodes + 1); },
       "hosts: found 1000001 of them, expected at most 1000000"},
      {"too many links", [](Parts& p) { p.links.resize(Topology::most_nodes + 1); },
       "links: found 1000001 of them"},
  };
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.what);
    Parts parts;
    bad.spoil(parts);
    const std::string error = error_of([&] { parts.make(); });
    expect_contains(error, "invalid_argument: ");
    expect_contains(error, bad.message);
  }
}

/// Finds all best routes by exhaustive search, with an independent implementation of the rules of
/// Topology::route.
class BruteForce {
 public:
  BruteForce(const std::vector<Node>& nodes, const std::vector<Link>& links)
      : graph_nodes_(nodes), links_(links) {}

  std::vector<Channel> route(int from, int to) {
    from_ = from;
    to_ = to;
    for (const bool inside : {true, false}) {
      if (inside && (host(from) < 0 || host(from) != host(to))) continue;
      inside_ = inside;
      best_.clear();
      channels_.clear();
      nodes_ = {from};
      extend(host(from) < 0 ? 1 : 0);
      if (!best_.empty()) return deal();
    }
    return {};
  }

 private:
  struct Way {
    std::int64_t latency;
    double minus_width;
    std::size_t links;
    std::vector<Channel> channels;
  };

  /// A node's index among its host's devices; 0 if it is no device.
  int number(int node) const {
    int result = 0;
    for (int i = 0; i < node; ++i) {
      if (host(i) == host(node) && is_device(kind(i))) ++result;
    }
    return is_device(kind(node)) ? result : 0;
  }

  /// The one of the best routes, which all have the same number of links, that the rules choose.
  std::vector<Channel> deal() const {
    std::vector<Way> left = best_;
    int at = from_;
    int phase = host(from_) < 0 ? 1 : 0;
    for (std::size_t i = 0; i < best_[0].links; ++i) {
      std::set<Channel> next;
      for (const Way& way : left) next.insert(way.channels[i]);
      const auto end_of = [&](Channel channel) {
        const Link& link = links_[static_cast<std::size_t>(link_of(channel))];
        return channel % 2 == 0 ? link.to : link.from;
      };
      const auto phase_after = [&](Channel channel) {
        const int end = end_of(channel);
        return host(end) < 0 ? 1 : phase == 0 && host(at) == host(end) ? 0 : 2;
      };
      const int out = phase_after(*next.begin()) == 2 ? 0 : number(from_);
      const int in = phase == 0 ? 0 : number(to_);
      const Channel taken = *std::next(next.begin(), (out + in) % static_cast<int>(next.size()));
      std::erase_if(left, [&](const Way& way) { return way.channels[i] != taken; });
      phase = phase_after(taken);
      at = end_of(taken);
    }
    return left[0].channels;
  }

  int host(int node) const { return graph_nodes_[static_cast<std::size_t>(node)].host; }
  NodeKind kind(int node) const { return graph_nodes_[static_cast<std::size_t>(node)].kind; }

  /// Phases: 0 in the first host, 1 in the network, 2 in the last host.
  void extend(int phase) {
    const int at = nodes_.back();
    if (at == to_ && phase == (inside_ ? 0 : host(to_) < 0 ? 1 : 2)) return judge();
    if (nodes_.size() > 1 && is_device(kind(at))) return;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const Link& link = links_[i];
      if (link.from != at && link.to != at) continue;
      const int next = link.from == at ? link.to : link.from;
      const bool stays = host(next) >= 0 && host(next) == host(at);
      const int next_phase = stays ? phase : host(next) < 0 ? 1 : 2;
      if (inside_ && !stays) continue;
      if (!stays && phase == 2) continue;
      if (next_phase == 2 && host(next) != host(to_)) continue;
      if (std::ranges::find(visited_, std::pair(next_phase, next)) != visited_.end()) continue;
      visited_.emplace_back(next_phase, next);
      nodes_.push_back(next);
      channels_.push_back(static_cast<Channel>(2 * i + (link.from == at ? 0 : 1)));
      extend(next_phase);
      channels_.pop_back();
      nodes_.pop_back();
      visited_.pop_back();
    }
  }

  void judge() {
    for (std::size_t i = 1; i + 1 < nodes_.size(); ++i) {
      const bool is_edge_of_host =
          host(nodes_[i - 1]) != host(nodes_[i]) || host(nodes_[i + 1]) != host(nodes_[i]);
      if (kind(nodes_[i]) == NodeKind::nic && !is_edge_of_host) return;
    }
    Way way{0, 0, channels_.size(), channels_};
    double width = std::numeric_limits<double>::infinity();
    for (const Channel channel : channels_) {
      const Link& link = links_[static_cast<std::size_t>(link_of(channel))];
      way.latency += std::llround(link.latency * 1e6);
      width = std::min(width, link.bandwidth);
    }
    way.minus_width = -width;
    const auto quality = [](const Way& w) { return std::tie(w.latency, w.minus_width, w.links); };
    if (!best_.empty() && quality(way) < quality(best_[0])) best_.clear();
    if (best_.empty() || quality(way) == quality(best_[0])) best_.push_back(way);
  }

  const std::vector<Node>& graph_nodes_;
  const std::vector<Link>& links_;
  int from_ = 0;
  int to_ = 0;
  bool inside_ = false;
  std::vector<int> nodes_;
  std::vector<Channel> channels_;
  std::vector<std::pair<int, int>> visited_;
  std::vector<Way> best_;
};

// The simulator would charge links that no byte uses.
TEST(Topology, RoutesOfRandomGraphsAreTheBestOfAllWays) {
  int compared = 0;
  int refused = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::optional<Topology> topology;
    const std::string error = error_of([&] { topology.emplace(random_graph(seed)); });
    if (!topology) {
      expect_contains(error, "links: found no way from ");
      ++refused;
      continue;
    }
    BruteForce brute_force(topology->nodes(), topology->links());
    for (const int from : topology->devices()) {
      for (const int to : topology->devices()) {
        ASSERT_EQ(topology->route(from, to), brute_force.route(from, to))
            << to_json(*topology) << from << " to " << to;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 2000);
  EXPECT_GT(refused, 10);
}

// A connected graph would be refused, or a disconnected one accepted.
TEST(Topology, RefusesExactlyTheDisconnected) {
  int refused = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Topology connected = random_graph(seed, true);
    for (std::size_t i = 0; i < connected.links().size(); ++i) {
      SCOPED_TRACE(fmt::format("seed {} without link {}", seed, i));
      auto links = connected.links();
      links.erase(links.begin() + static_cast<std::ptrdiff_t>(i));
      BruteForce brute_force(connected.nodes(), links);
      std::optional<Topology> less;
      const std::string error = error_of([&] { less.emplace(connected.hosts(), connected.nodes(), links); });
      if (less) {
        for (const int from : less->devices()) {
          for (const int to : less->devices())
            ASSERT_TRUE(from == to || !brute_force.route(from, to).empty());
        }
        continue;
      }
      ++refused;
      std::smatch names;
      ASSERT_TRUE(std::regex_search(error, names, std::regex("found no way from '(.*)' to '(.*)', expected")))
          << error;
      ASSERT_TRUE(brute_force.route(find(connected, names[1]), find(connected, names[2])).empty()) << error;
    }
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace ddl::topology
