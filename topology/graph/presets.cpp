// Named machines. topology/README.md lists the figures and their sources.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "topology/graph/graph_builder.hpp"
#include "topology/graph/link_figures.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::topology {
namespace {

constexpr double bits_per_byte = 8;

double network_bandwidth(double gigabits) { return gigabits / bits_per_byte; }

std::string numbered(std::string_view name, int number) { return fmt::format("{}{}", name, number); }

std::vector<int> add_nodes(GraphBuilder& graph, int host, std::string_view name, NodeKind kind, int count) {
  std::vector<int> result;
  for (int i = 0; i < count; ++i) result.push_back(graph.add_node(host, numbered(name, i), kind));
  return result;
}

/// Adds two packages and the link between them.
std::array<int, 2> add_packages(GraphBuilder& graph, int host, double bandwidth) {
  const auto packages = add_nodes(graph, host, "package", NodeKind::package, 2);
  graph.link(packages[0], packages[1], LinkKind::socket, bandwidth, figures::socket_latency);
  return {packages[0], packages[1]};
}

/// Adds PCIe switches, the first half of them at the first package, and spreads the GPUs and NICs evenly over
/// them. Returns the NICs.
std::vector<int> add_pcie_tree(GraphBuilder& graph, int host, const std::array<int, 2>& packages,
                               std::span<const int> gpus, int switches, int nics, double bandwidth) {
  std::vector<int> fabric;
  for (int i = 0; i < switches; ++i) {
    fabric.push_back(graph.add_node(host, numbered("pcie", i), NodeKind::fabric));
    graph.link(packages[2 * i < switches ? 0 : 1], fabric.back(), LinkKind::pcie, bandwidth,
               figures::pcie_latency);
  }
  const auto result = add_nodes(graph, host, "nic", NodeKind::nic, nics);
  for (const std::span<const int> below : {gpus, std::span(result)}) {
    for (std::size_t i = 0; i < below.size(); ++i) {
      graph.link(fabric[i * fabric.size() / below.size()], below[i], LinkKind::pcie, bandwidth,
                 figures::pcie_latency);
    }
  }
  return result;
}

constexpr double broadwell = figures::nccl::socket_bandwidth("x86_64", "GenuineIntel", 6, 0x4f);
constexpr double skylake = figures::nccl::socket_bandwidth("x86_64", "GenuineIntel", 6, 0x55);
constexpr double rome = figures::nccl::socket_bandwidth("x86_64", "AuthenticAMD", 23, 0x31);
constexpr double sapphire_rapids = figures::nccl::socket_bandwidth("x86_64", "GenuineIntel", 6, 0x8f);

std::vector<int> add_ac922(GraphBuilder& graph, int host) {
  constexpr double bricks = 3;
  const auto packages = add_packages(graph, host, figures::nccl::socket_bandwidth("ppc64", "", 0, 0));
  const auto gpus = add_nodes(graph, host, "gpu", NodeKind::gpu, 4);
  const double bandwidth = bricks * figures::nvlink_bandwidth;
  for (std::size_t i = 0; i < 4; ++i) {
    graph.link(gpus[i], packages[i / 2], LinkKind::nvlink, bandwidth, figures::nvlink_to_package_latency);
  }
  graph.link(gpus[0], gpus[1], LinkKind::nvlink, bandwidth, figures::nvlink_latency);
  graph.link(gpus[2], gpus[3], LinkKind::nvlink, bandwidth, figures::nvlink_latency);
  const int nic = graph.add_node(host, "nic0", NodeKind::nic);
  for (const int package : packages) {  // eight lanes of PCIe 4 to each package
    graph.link(package, nic, LinkKind::pcie, figures::pcie4_x16_bandwidth / 2, figures::pcie_latency);
  }
  return {nic};
}

std::vector<int> add_dgx1v(GraphBuilder& graph, int host) {
  constexpr std::array<std::string_view, 8> links = {"02112000", "20120100", "11020020", "12200001",
                                                     "20000211", "01002012", "00201102", "00011220"};
  const auto packages = add_packages(graph, host, broadwell);
  const auto gpus = add_nodes(graph, host, "gpu", NodeKind::gpu, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = i + 1; j < 8; ++j) {
      const int bundle = links[i][j] - '0';
      if (bundle == 0) continue;
      graph.link(gpus[i], gpus[j], LinkKind::nvlink, bundle * figures::nvlink_bandwidth,
                 figures::nvlink_latency);
    }
  }
  return add_pcie_tree(graph, host, packages, gpus, 4, 4, figures::pcie3_x16_bandwidth);
}

struct Switched {
  int gpus;
  int nvlinks;
  int pcie_switches;
  int nics;
  double pcie;
  double socket;
};

/// Adds GPUs that reach each other over NVSwitch. One node stands for all switches, because together they
/// carry all links at full rate.
std::vector<int> add_switched(GraphBuilder& graph, int host, const Switched& machine) {
  const auto packages = add_packages(graph, host, machine.socket);
  const auto gpus = add_nodes(graph, host, "gpu", NodeKind::gpu, machine.gpus);
  const int nvswitch = graph.add_node(host, "nvswitch", NodeKind::fabric);
  for (const int gpu : gpus) {
    graph.link(gpu, nvswitch, LinkKind::nvlink, machine.nvlinks * figures::nvlink_bandwidth,
               figures::nvlink_to_switch_latency);
  }
  return add_pcie_tree(graph, host, packages, gpus, machine.pcie_switches, machine.nics, machine.pcie);
}

std::vector<int> add_dgx_h100(GraphBuilder& graph, int host) {
  return add_switched(graph, host, {8, 18, 8, 8, figures::pcie5_x16_bandwidth, sapphire_rapids});
}

struct Machine {
  Preset preset;
  std::vector<int> (*add_host)(GraphBuilder&, int host);
  double network_gigabits;  // of each NIC
  bool has_rails = false;
};

constexpr std::array machines = {
    Machine{{"ac922", "IBM AC922: 2 POWER9, 4 V100 on NVLink 2, 100 Gb/s", 4}, add_ac922, 100},
    Machine{{"dgx1v", "NVIDIA DGX-1V: 8 V100 in a hybrid cube mesh of NVLink 2, 4 x 100 Gb/s", 8},
            add_dgx1v,
            100},
    Machine{{"dgx2", "NVIDIA DGX-2: 16 V100 on NVSwitch, 8 x 100 Gb/s", 16},
            [](GraphBuilder& graph, int host) {
              return add_switched(graph, host, {16, 6, 8, 8, figures::pcie3_x16_bandwidth, skylake});
            },
            100},
    Machine{{"dgx_a100", "NVIDIA DGX A100: 8 A100 on NVSwitch, 8 x 200 Gb/s", 8},
            [](GraphBuilder& graph, int host) {
              return add_switched(graph, host, {8, 12, 4, 8, figures::pcie4_x16_bandwidth, rome});
            },
            200},
    Machine{{"dgx_h100", "NVIDIA DGX H100: 8 H100 on NVSwitch, 8 x 400 Gb/s", 8}, add_dgx_h100, 400},
    Machine{
        {"dgx_h100_rails", "the same, with a switch for each rail and a spine of a quarter of their rate", 8},
        add_dgx_h100,
        400,
        true},
};

constexpr Preset ethernet{"ethernet", "hosts of CPU ranks on one switch: ethernet:HOSTSxRANKS[@RATE]", 0};
constexpr Preset host_preset{"host", "one host of CPU ranks: host:RANKS", 0};

constexpr auto all_presets = [] {
  std::array<Preset, machines.size() + 2> result{};
  std::ranges::transform(machines, result.begin(), &Machine::preset);
  result[machines.size()] = ethernet;
  result[machines.size() + 1] = host_preset;
  return result;
}();

[[noreturn]] void refuse_preset(std::string_view text, std::string_view found, std::string_view expected) {
  refuse("topology preset '{}': found {}, expected {}", text.substr(0, 80), found, expected);
}

int parse_count(std::string_view text, std::string_view count, std::string_view what) {
  constexpr int most = static_cast<int>(Topology::most_nodes);
  const auto result = parse_whole<int>(count);
  if (!result || *result < 1 || *result > most) {
    refuse_preset(text, fmt::format("'{}'", count.substr(0, 40)),
                  fmt::format("a number of {} from 1 to {}", what, most));
  }
  return *result;
}

/// Parses "10gbit" to GB/s.
double parse_rate(std::string_view text, std::string_view rate) {
  constexpr std::array<std::pair<std::string_view, double>, 4> units = {
      {{"kbit", 1e-6}, {"mbit", 1e-3}, {"gbit", 1}, {"tbit", 1e3}}};
  double number = 0;
  const auto [end, error] = read_number(rate.data(), rate.data() + rate.size(), number);
  const std::string_view unit(end, as_index(rate.data() + rate.size() - end));
  const auto* const known = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
  const double bandwidth = known == units.end() ? 0 : network_bandwidth(number * known->second);
  const bool is_rate = error == std::errc{} && bandwidth > 0 && bandwidth <= Topology::highest_bandwidth;
  if (!is_rate) {
    refuse_preset(text, fmt::format("rate '{}'", rate.substr(0, 40)),
                  "a number above 0 with a unit, as in 1gbit, 2.5gbit or 100mbit");
  }
  return bandwidth;
}

void check_size(std::string_view text, std::size_t nodes_per_host, std::size_t links_per_host, int hosts) {
  const std::size_t most_per_host = (Topology::most_nodes - 9) / as_index(hosts);  // up to 9 are the network
  if (std::max(nodes_per_host, links_per_host) > most_per_host) {
    refuse_preset(
        text, fmt::format("{} hosts of {} nodes and {} links each", hosts, nodes_per_host, links_per_host),
        fmt::format("fewer than {} nodes and links in all", Topology::most_nodes));
  }
}

/// Hosts with CPU ranks. `network_rate`: GB/s of each host's NIC; without it there must be one host.
Topology make_cpu_hosts(std::string_view text, int hosts, int ranks, std::optional<double> network_rate) {
  const std::size_t links = as_index(ranks) + (network_rate ? 2 : 0);
  check_size(text, as_index(ranks) + (network_rate ? 2 : 1), links, hosts);
  GraphBuilder graph;
  std::vector<int> nics;
  for (int i = 0; i < hosts; ++i) {
    const int host = graph.add_host(numbered("h", i));
    const int package = graph.add_node(host, "package0", NodeKind::package);
    for (const int cpu : add_nodes(graph, host, "cpu", NodeKind::cpu, ranks)) {
      graph.link(cpu, package, LinkKind::memory, figures::memory_bandwidth, figures::memory_latency,
                 Duplex::half);
    }
    if (!network_rate) continue;
    nics.push_back(graph.add_node(host, "nic0", NodeKind::nic));
    // PCIe must not limit the network, whatever its rate.
    graph.link(package, nics.back(), LinkKind::pcie, std::max(*network_rate, figures::pcie3_x16_bandwidth),
               figures::pcie_latency);
  }
  if (network_rate) graph.link_all(nics, "network", *network_rate, figures::tcp_network_latency);
  return graph.finish();
}

Topology make_ethernet(std::string_view text, std::string_view argument) {
  const auto at = argument.find('@');
  const std::string_view sizes = argument.substr(0, at);
  const auto cross = sizes.find('x');
  if (cross == sizes.npos) {
    refuse_preset(text, fmt::format("'{}'", argument.substr(0, 40)),
                  "HOSTSxRANKS[@RATE], as in ethernet:4x4@10gbit");
  }
  const int hosts = parse_count(text, sizes.substr(0, cross), "hosts");
  const int ranks = parse_count(text, sizes.substr(cross + 1), "ranks per host");
  const double rate = at == argument.npos ? network_bandwidth(10) : parse_rate(text, argument.substr(at + 1));
  return make_cpu_hosts(text, hosts, ranks, rate);
}

Topology make_machines(std::string_view text, const Machine& machine, int hosts) {
  GraphBuilder graph;
  std::vector<int> nics;
  for (int i = 0; i < hosts; ++i) {
    const auto added = machine.add_host(graph, graph.add_host(numbered("h", i)));
    nics.insert(nics.end(), added.begin(), added.end());
    if (i == 0) check_size(text, graph.nodes.size(), graph.links.size() + nics.size(), hosts);
  }
  const double rate = network_bandwidth(machine.network_gigabits);
  if (!machine.has_rails) {
    graph.link_all(nics, "network", rate, figures::network_latency);
    return graph.finish();
  }
  const int spine = graph.add_network("spine");
  const std::size_t rails = nics.size() / as_index(hosts);
  for (std::size_t rail = 0; rail < rails; ++rail) {
    std::vector<int> of_rail;
    for (std::size_t i = rail; i < nics.size(); i += rails) of_rail.push_back(nics[i]);
    graph.link_all(of_rail, numbered("rail", static_cast<int>(rail)), rate, figures::network_latency);
    graph.link(static_cast<int>(graph.nodes.size()) - 1, spine, LinkKind::network, rate * hosts / 4,
               figures::network_latency);
  }
  return graph.finish();
}

}  // namespace

std::span<const Preset> presets() { return all_presets; }

Topology make_preset(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::optional<std::string_view> argument =
      colon == text.npos ? std::nullopt : std::optional(text.substr(colon + 1));
  if (name == host_preset.name) {
    if (!argument) refuse_preset(text, "no number of ranks", "host:RANKS, as in host:8");
    return make_cpu_hosts(text, 1, parse_count(text, *argument, "ranks"), std::nullopt);
  }
  if (name == ethernet.name) {
    if (!argument) refuse_preset(text, "no sizes", "ethernet:HOSTSxRANKS[@RATE], as in ethernet:4x4@10gbit");
    return make_ethernet(text, *argument);
  }
  const auto* const machine =
      std::ranges::find(machines, name, [](const Machine& m) { return m.preset.name; });
  if (machine == machines.end()) {
    std::vector<std::string_view> names;
    for (const Preset& preset : all_presets) names.push_back(preset.name);
    refuse_preset(text, fmt::format("name '{}'", name.substr(0, 40)),
                  fmt::format("one of {}, with a number of hosts as in ac922:4", fmt::join(names, ", ")));
  }
  return make_machines(text, *machine, argument ? parse_count(text, *argument, "hosts") : 1);
}

}  // namespace ddl::topology
