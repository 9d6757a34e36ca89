// Reads NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "topology/graph/graph_builder.hpp"
#include "topology/graph/link_figures.hpp"
#include "topology/graph/xml_document.hpp"
#include "topology/json_text.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::topology {
namespace {

constexpr std::size_t most_packages = 256;  // every two of them get a link
constexpr int default_lanes = 16;
constexpr int default_megabits = 10'000;

struct Gpu {
  const XmlElement* element;
  int package;
  int dev;
  int sm;
  int node = -1;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Adds the contents of one file to the graph.
class HostFile {
 public:
  HostFile(std::string_view source, GraphBuilder& graph, int host)
      : source_(source), graph_(graph), host_(host) {}

  void read(const XmlElement& system) {
    if (system.name != "system")
      fail(system, fmt::format("<{}>", printable(system.name)), "<system>, NCCL's topology");
    const std::string& version = text(system, "version");
    if (version != "1") fail(system, fmt::format("version {}", in_quotes(version)), "version 1");
    allow(system, {"cpu"});
    if (system.children.empty()) fail(system, "no <cpu>", "at least one");
    if (system.children.size() > most_packages) {
      fail(system, fmt::format("{} <cpu>", system.children.size()), fmt::format("at most {}", most_packages));
    }
    add_packages(system);
    add_gpus(system);
    for (std::size_t i = 0; i < system.children.size(); ++i) {
      allow(system.children[i], {"pci", "nic"});
      add_pci_children(system.children[i], packages_[i]);
    }
    add_nvlinks();
  }

  /// A NIC, with the bandwidth (GB/s) and latency (us) of its link to the network.
  struct Nic {
    int node;
    double bandwidth;
    double latency;
  };
  [[nodiscard]] const std::vector<Nic>& nics() const { return nics_; }

  [[noreturn]] void fail(const XmlElement& element, std::string_view found, std::string_view expected) const {
    fail_with(ErrorCode::corrupt_data, "{}: line {}, <{}>: found {}, expected {}", source_, element.line,
              printable(element.name), found, expected);
  }

 private:
  const std::string& text(const XmlElement& element, std::string_view name) const {
    const std::string* const value = element.attribute(name);
    if (value == nullptr) fail(element, fmt::format("no attribute '{}'", name), "one");
    return *value;
  }

  template <typename Number>
  Number number(const XmlElement& element, std::string_view name, Number lowest, Number highest) const {
    const std::string& value = text(element, name);
    const auto result = parse_whole<Number>(value);
    if (!result || !(*result >= lowest && *result <= highest)) {
      fail(element, fmt::format("{} {}", name, in_quotes(value)),
           fmt::format("a number {} to {}", lowest, highest));
    }
    return *result;
  }
  template <typename Number>
  Number number_or(Number otherwise, const XmlElement& element, std::string_view name, Number lowest,
                   Number highest) const {
    return element.attribute(name) == nullptr ? otherwise : number(element, name, lowest, highest);
  }

  void allow(const XmlElement& element, std::initializer_list<std::string_view> names) const {
    for (const XmlElement& child : element.children) {
      if (std::ranges::find(names, child.name) == names.end()) {
        fail(child, fmt::format("it inside <{}>", element.name),
             names.size() == 0 ? "nothing there" : fmt::format("there only: {}", fmt::join(names, ", ")));
      }
    }
  }

  int add_node(const XmlElement& element, const std::string& name, NodeKind kind) {
    if (!names_.insert(name).second)
      fail(element, fmt::format("{} a second time", in_quotes(name)), "it once");
    return graph_.add_node(host_, name, kind);
  }

  void add_packages(const XmlElement& system) {
    const std::string* first_hash = nullptr;
    for (const XmlElement& cpu : system.children) {
      const std::string* const hash = cpu.attribute("host_hash");
      if (first_hash == nullptr) first_hash = hash;
      if (hash != nullptr && *hash != *first_hash) {
        fail(cpu, "another host_hash than before", "one host in a file; export each host's own");
      }
      const int numa = number(cpu, "numaid", -1, 1'000'000);
      packages_.push_back(add_node(cpu, fmt::format("package{}", std::max(numa, 0)), NodeKind::package));
    }
    const XmlElement& cpu = system.children.front();
    const std::string* const vendor = cpu.attribute("vendor");
    const double bandwidth = figures::nccl::socket_bandwidth(
        text(cpu, "arch"), vendor == nullptr ? "" : *vendor, number_or(0, cpu, "familyid", -1, 1'000'000),
        number_or(0, cpu, "modelid", -1, 1'000'000));
    for (std::size_t i = 0; i < packages_.size(); ++i) {
      for (std::size_t j = i + 1; j < packages_.size(); ++j) {
        graph_.link(packages_[i], packages_[j], LinkKind::socket, bandwidth, figures::socket_latency);
      }
    }
  }

  /// Adds the GPU nodes in the order of their `dev` numbers, which is the order of ranks.
  void add_gpus(const XmlElement& system) {
    for (std::size_t i = 0; i < system.children.size(); ++i) find_gpus(system.children[i], packages_[i]);
    for (auto& [bus_id, gpu] : gpus_) in_order_.push_back(&gpu);
    std::ranges::stable_sort(in_order_, {}, &Gpu::dev);
    for (Gpu* const gpu : in_order_) {
      gpu->node = add_node(*gpu->element, fmt::format("gpu{}", gpu->dev), NodeKind::gpu);
    }
  }

  void find_gpus(const XmlElement& parent, int package) {
    for (const XmlElement& child : parent.children) {
      if (child.name == "pci") find_gpus(child, package);
      if (child.name != "gpu" || parent.name != "pci") continue;
      const Gpu gpu{&child, package, number(child, "dev", 0, 1'000'000), number(child, "sm", 10, 10'000)};
      const bool is_new = gpus_.emplace(lower(text(parent, "busid")), gpu).second;
      if (!is_new)
        fail(parent, fmt::format("busid {} a second time", in_quotes(text(parent, "busid"))), "it once");
    }
  }

  void add_pci_children(const XmlElement& element, int parent) {
    for (const XmlElement& child : element.children) {
      if (child.name == "pci") add_pci(child, parent);
      if (child.name == "nic") add_nics(child, parent, figures::nccl::local_bandwidth, 0);
    }
  }

  void add_pci(const XmlElement& pci, int parent) {
    allow(pci, {"pci", "gpu", "nic"});
    const auto is = [](std::string_view name) {
      return [name](const XmlElement& child) { return child.name == name; };
    };
    const std::string bus_id = lower(text(pci, "busid"));
    const double bandwidth = pcie_bandwidth(pci);
    if (std::ranges::any_of(pci.children, is("gpu"))) {
      if (pci.children.size() != 1) fail(pci, "other elements beside a <gpu>", "one <gpu> alone");
      allow(pci.children.front(), {"nvlink", "c2c"});
      graph_.link(parent, gpus_.at(bus_id).node, LinkKind::pcie, bandwidth, figures::pcie_latency);
      return;
    }
    std::size_t nets = 0;
    for (const XmlElement& child : pci.children) {
      if (child.name == "nic") nets += as_index(std::ranges::count_if(child.children, is("net")));
    }
    const bool is_switch = nets > 1 || std::ranges::any_of(pci.children, is("pci"));
    if (is_switch) {  // also a NIC with several ports, which share its PCIe link
      const int fabric = add_node(pci, "pcie" + bus_id, NodeKind::fabric);
      graph_.link(parent, fabric, LinkKind::pcie, bandwidth, figures::pcie_latency);
      parent = fabric;
    }
    for (const XmlElement& child : pci.children) {
      if (child.name == "pci") add_pci(child, parent);
      if (child.name == "nic") add_nics(child, parent, bandwidth, figures::pcie_latency);
    }
  }

  double pcie_bandwidth(const XmlElement& pci) const {
    constexpr int unknown_lanes = 255;  // reported by some virtual machines
    int lanes = number_or(0, pci, "link_width", 0, unknown_lanes);
    if (lanes == 0 || lanes == unknown_lanes) lanes = default_lanes;
    double speed = 0;
    if (const std::string* const written = pci.attribute("link_speed")) {
      read_number(written->data(), written->data() + written->size(), speed);
    }
    return figures::nccl::pcie_bandwidth(speed, lanes);
  }

  void add_nics(const XmlElement& nic, int parent, double bandwidth, double latency) {
    allow(nic, {"net", "gin", "rma"});
    for (const XmlElement& net : nic.children) {
      if (net.name != "net" || net.attribute("dev") == nullptr || number_or(1, net, "net", 0, 1) == 0)
        continue;
      const int node = add_node(net, fmt::format("nic{}", number(net, "dev", 0, 1'000'000)), NodeKind::nic);
      graph_.link(parent, node, LinkKind::pcie, bandwidth, latency);
      int megabits = number_or(0, net, "speed", -1, 1'000'000'000);
      if (megabits <= 0) megabits = default_megabits;
      const double stated_latency = number_or(0.0, net, "latency", 0.0, Topology::highest_latency);
      nics_.push_back(
          {node, megabits / 8000.0, stated_latency > 0 ? stated_latency : figures::network_latency});
    }
  }

  void add_nvlinks() {
    std::map<std::pair<int, int>, double> between;  // GB/s from one GPU to another
    int nvswitch = -1;
    for (const Gpu* const gpu : in_order_) {
      double to_package = 0;
      double to_switch = 0;
      for (const XmlElement& link : gpu->element->children) {
        allow(link, {});
        if (link.name == "c2c") {
          to_package += number(link, "count", 1, 1000) * number(link, "bw", 1, 1'000'000) / 1000.0;
          continue;
        }
        const double bandwidth = number(link, "count", 1, 1000) * figures::nccl::nvlink_bandwidth(gpu->sm);
        const std::string type = lower(text(link, "tclass"));
        if (type.starts_with("0x068000")) {
          to_switch += bandwidth;
        } else if (type.starts_with("0x068001")) {
          to_package += bandwidth;
        } else if (type.starts_with("0x03")) {
          const auto target = gpus_.find(lower(text(link, "target")));
          if (target == gpus_.end()) continue;  // a GPU that the job does not use
          if (&target->second == gpu) fail(link, "a link of a GPU to itself", "another GPU as target");
          between[{gpu->node, target->second.node}] += bandwidth;
        } else {
          fail(link, fmt::format("tclass {}", in_quotes(type)),
               "0x03... (GPU), 0x068000 (NVSwitch) or 0x068001 (CPU)");
        }
      }
      if (to_package > 0) {
        graph_.link(gpu->node, gpu->package, LinkKind::nvlink, to_package,
                    figures::nvlink_to_package_latency);
      }
      if (to_switch > 0) {
        if (nvswitch < 0) nvswitch = add_node(*gpu->element, "nvswitch", NodeKind::fabric);
        graph_.link(gpu->node, nvswitch, LinkKind::nvlink, to_switch, figures::nvlink_to_switch_latency);
      }
    }
    for (const auto& [ends, bandwidth] : between) {
      const auto back = between.find({ends.second, ends.first});
      if (back == between.end() || back->second != bandwidth) {
        const auto name = [&](int node) { return graph_.nodes[as_index(node)].name; };
        const auto gpu = std::ranges::find(in_order_, ends.first, &Gpu::node);
        fail(*(*gpu)->element,
             fmt::format("NVLink of {} GB/s from {} to {}, and {} back", bandwidth, name(ends.first),
                         name(ends.second), back == between.end() ? 0 : back->second),
             "the same in both directions");
      }
      if (ends.first < ends.second) {
        graph_.link(ends.first, ends.second, LinkKind::nvlink, bandwidth, figures::nvlink_latency);
      }
    }
  }

  std::string_view source_;
  GraphBuilder& graph_;
  int host_;
  std::set<std::string> names_;
  std::vector<int> packages_;
  std::map<std::string, Gpu> gpus_;  // by bus id
  std::vector<Gpu*> in_order_;       // in the order of their nodes
  std::vector<Nic> nics_;
};

}  // namespace

Topology topology_from_nccl_xml(std::span<const std::string> texts, std::span<const std::string> sources) {
  if (texts.empty() || texts.size() != sources.size()) {
    refuse("topology_from_nccl_xml: found {} texts and {} sources, expected as many, at least one",
           texts.size(), sources.size());
  }
  GraphBuilder graph;
  std::vector<HostFile::Nic> nics;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const XmlElement system = parse_xml(texts[i], sources[i]);
    HostFile file(sources[i], graph, graph.add_host(fmt::format("h{}", i)));
    file.read(system);
    if (texts.size() > 1 && file.nics().empty()) {
      file.fail(system, "no <net>", "at least one in each of several hosts, to reach the others");
    }
    nics.insert(nics.end(), file.nics().begin(), file.nics().end());
  }
  if (!nics.empty()) {
    const int network = graph.add_network("network");
    for (const auto& nic : nics) graph.link(nic.node, network, LinkKind::network, nic.bandwidth, nic.latency);
  }
  return check_source(fmt::format("{}", fmt::join(sources, ", ")), [&] { return graph.finish(); });
}

}  // namespace ddl::topology
