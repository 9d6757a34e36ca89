// Draws plans with Graphviz (https://graphviz.org/doc/info/lang.html).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "collectives/system/descriptors.hpp"
#include "ddl/files/durable_file.hpp"
#include "ddl/tools/plan_report.hpp"
#include "ddl/tools/plan_units.hpp"
#include "ddl/tools/plan_wiring.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/refuse.hpp"

namespace ddl::tools {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeKind;

constexpr std::size_t most_hosts = 8;
constexpr std::size_t most_devices = 16;  // of a host
constexpr std::size_t most_others = 40;   // of a host, and of the network
constexpr std::size_t most_rows = 8;      // of a dimension
constexpr std::size_t most_groups = 4096;
constexpr std::size_t few_nodes = 14;  // of a host whose links all have labels

/// Escapes characters that Graphviz's strings and HTML-like labels give a meaning.
std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_special = std::string_view("&<>\"\\").find(c) != std::string_view::npos;
    result += is_special ? fmt::format("&#{};", static_cast<int>(c)) : std::string(1, c);
  }
  return result;
}

/// Colours of ColorBrewer's schemes, which Graphviz knows.
std::string color_of_utilisation(double share) {
  return fmt::format("/ylorrd9/{}", 3 + std::lround(6 * std::clamp(share, 0.0, 1.0)));
}
std::string color_of_dimension(int dimension) { return fmt::format("/dark28/{}", 1 + (dimension + 2) % 8); }

class Drawing {
 public:
  Drawing(const topology::Planner& planner, const PlanReport& report)
      : planner_(planner), topology_(planner.topology()), report_(report), plan_(report.plan) {
    for (std::size_t rank = 0; rank < planner.placement().size(); ++rank) {
      rank_of_[topology_.node_of_device(planner.placement()[rank])] = rank;
    }
    if (report.simulation) {
      for (const topology::ChannelUse& use : report.simulation->channels) {
        double& share = busy_[topology::link_of(use.channel)];
        share = std::max(share, use.utilisation);
      }
    }
    choose_nodes();
  }

  std::string text() {
    line(R"(graph plan {{
graph [labelloc=t labeljust=l newrank=true nodesep=0.3 ranksep=0.35 pad=0.3 fontname="Helvetica,Arial,sans-serif"]
graph [fontsize=12 fontcolor="#374151" label=<{}>]
node [fontname="Helvetica,Arial,sans-serif" fontsize=11 shape=box style="rounded,filled" height=0.3 margin="0.08,0.04"]
edge [fontname="Helvetica,Arial,sans-serif" fontsize=9 fontcolor="#4b5563"])",
         heading());
    for (const int host : hosts_) draw_host(host);
    for (const int node : nodes_[-1]) draw_bar(node, "#e4ebf5", 100 * column_of_.size() / nodes_[-1].size());
    above_.resize(column_of_.size());
    for (const auto& [node, column] : column_of_) above_[column] = fmt::format("n{}", node);
    // Graphviz keeps the order of nodes in one row that are joined by edges.
    line("{{rank=same edge [style=invis] {}}}", fmt::join(above_, " -- "));
    for (int link = 0; link < static_cast<int>(topology_.links().size()); ++link) draw_link(link);
    for (int d = 0; d < plan_.decomposition.dimensions(); ++d) {
      if (plan_.decomposition.size(d) > 1) draw_dimension(d);
    }
    return fmt::to_string(text_) + "}\n";
  }

 private:
  /// From top to bottom.
  enum class Level { upper_network, network, nic, package, bus_switch, device, device_switch };

  /// The drawn members of a group: the column of each, and its place in the group.
  using Lane = std::map<std::size_t, std::size_t>;

  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_.push_back('\n');
  }

  void choose_nodes() {
    std::set<int> in_use;
    for (const auto& [node, rank] : rank_of_) in_use.insert(topology_.node(node).host);
    hosts_in_use_ = in_use.size();
    for (const int host : in_use) {
      if (hosts_.size() < most_hosts) hosts_.push_back(host);
    }
    std::map<std::pair<int, bool>, std::size_t> counts;  // of devices and of other nodes, by host
    for (int index = 0; index < static_cast<int>(topology_.nodes().size()); ++index) {
      const auto& [name, kind, host] = topology_.node(index);
      if (host < 0 ? hosts_in_use_ == 1 : !std::ranges::binary_search(hosts_, host)) continue;
      const bool is_device = topology::is_device(kind);
      const bool fits = counts[{host, is_device}]++ < (is_device ? most_devices : most_others);
      if (fits) nodes_[host].push_back(index);
      if (fits) drawn_.insert(index);
      if (!fits) ++left_out_[host];
    }
    for (const int host : hosts_) {
      for (const int node : nodes_[host]) {
        if (topology::is_device(topology_.node(node).kind)) column_of_.emplace(node, column_of_.size());
      }
    }
  }

  [[nodiscard]] std::string heading() const {
    std::vector<std::string> lines;
    lines.push_back(fmt::format("{}; predicted {}, bound {}", short_name(plan_),
                                topology::format_us(plan_.predicted_us),
                                topology::format_us(plan_.bound_us)));
    if (report_.simulation) {
      lines.back() += fmt::format(", simulated {}", topology::format_us(report_.simulation->total_us));
      lines.emplace_back(
          "Links: how much of the time the busier direction is busy, simulated; dashed: not used.");
      for (int percent = 0; percent <= 100; percent += 20) {
        lines.back() += fmt::format("  <font color=\"{}\">&#9632;</font> {}%",
                                    color_of_utilisation(percent / 100.0), percent);
      }
    } else {
      lines.emplace_back("Links have no colours: the plan is too large to simulate.");
    }
    std::map<LinkKind, std::set<double>> kinds;
    for (const Link& link : topology_.links()) {
      if (drawn_.contains(link.from) && drawn_.contains(link.to)) kinds[link.kind].insert(link.bandwidth);
    }
    std::vector<std::string> wires;
    for (const auto& [kind, rates] : kinds) {
      wires.push_back(fmt::format("{} {:.4g}", to_string(kind), *rates.begin()));
      if (rates.size() > 1) wires.back() += fmt::format(" to {:.4g}", *rates.rbegin());
    }
    lines.push_back(fmt::format("GB/s in one direction: {}. Wider lines have more.", fmt::join(wires, ", ")));
    lines.emplace_back(
        "Below the hosts: a line joins ranks that work together, numbered in their order; a double line is a "
        "ring.");
    if (const auto found = left_out_.find(-1); found != left_out_.end()) {
      lines.push_back(count_text(found->second, "more network node") + " not drawn.");
    }
    if (hosts_in_use_ > hosts_.size()) {
      lines.push_back(count_text(hosts_in_use_ - hosts_.size(), "more host") + " not drawn.");
    }
    if (const std::size_t idle = topology_.hosts().size() - hosts_in_use_; idle > 0) {
      lines.push_back(count_text(idle, "host") + " without ranks not drawn.");
    }
    std::string text = fmt::format(
        R"(<table border="0" cellspacing="0" cellpadding="1"><tr><td align="left"><font point-size="18"><b>{}</b></font></td></tr>)",
        escape(fmt::format("{} of {} {} among {} on {}", to_string(plan_.collective),
                           topology::format_bytes(static_cast<double>(plan_.bytes)), to_string(plan_.type),
                           count_text(rank_of_.size(), "rank"), report_.topology_name)));
    for (const std::string& each : lines) text += fmt::format(R"(<tr><td align="left">{}</td></tr>)", each);
    return text + "</table>";
  }

  void draw_host(int host) {
    const std::size_t left_out = left_out_[host];
    line(R"(subgraph cluster_{} {{ label="{}{}" style="rounded,filled" fillcolor="#f7f9fb" color="#c2cad6")",
         host, escape(topology_.hosts()[as_index(host)]),
         left_out > 0 ? fmt::format(" (and {})", count_text(left_out, "more node")) : "");
    for (const int index : nodes_[host]) {
      const Node& node = topology_.node(index);
      const auto rank = rank_of_.find(index);
      const bool is_device = topology::is_device(node.kind);
      const std::string whose = !is_device               ? ""
                                : rank == rank_of_.end() ? "<br/>no rank"
                                                         : fmt::format("<br/><b>rank {}</b>", rank->second);
      const char* const fill = node.kind == NodeKind::nic       ? "#fff7e0"
                               : node.kind == NodeKind::package ? "#e9eef5"
                               : !is_device                     ? "#e6f2ec"
                               : rank == rank_of_.end()         ? "#eff1f4"
                                                                : "#ffffff";
      if (is_bar(index)) {
        draw_bar(index, fill, 90 * column_of_.size() / hosts_.size());
      } else {
        line(R"(n{} [label=<{}{}> fillcolor="{}" color="#7f8fa9"])", index, name_in_host(node), whose, fill);
      }
    }
    line("}}");
  }

  static std::string name_in_host(const Node& node) {
    return escape(std::string_view(node.name).substr(node.name.find('/') + 1));
  }

  /// Draws a switch as a bar with a place for each link, so that links are straight.
  void draw_bar(int node, std::string_view fill, std::size_t width) {
    std::vector<int> links;
    for (const int link : topology_.links_at(node)) {
      if (drawn_.contains(topology_.other_end(link, node))) links.push_back(link);
    }
    std::string cells;
    for (const int link : links) {
      cells += fmt::format(R"(<td port="l{}" width="{}">{}</td>)", link, width / links.size(),
                           link == links.front() ? name_in_host(topology_.node(node)) : "");
    }
    if (links.empty()) return;
    line(
        R"(n{} [shape=plain style="" label=<<table border="1" cellborder="0" style="rounded" bgcolor="{}" color="#7f8fa9"><tr>{}</tr></table>>])",
        node, fill, cells);
  }

  [[nodiscard]] bool has_nvlink(int node) const {
    return std::ranges::any_of(topology_.links_at(node),
                               [&](int link) { return topology_.link(link).kind == LinkKind::nvlink; });
  }

  [[nodiscard]] Level level_of(int node) const {
    const auto is_nic = [&](int link) {
      return topology_.node(topology_.other_end(link, node)).kind == NodeKind::nic;
    };
    switch (topology_.node(node).kind) {
      case NodeKind::network:
        return std::ranges::any_of(topology_.links_at(node), is_nic) ? Level::network : Level::upper_network;
      case NodeKind::nic:
        return Level::nic;
      case NodeKind::package:
        return Level::package;
      case NodeKind::fabric:
        return has_nvlink(node) ? Level::device_switch : Level::bus_switch;
      default:
        return Level::device;
    }
  }

  [[nodiscard]] bool is_bar(int node) const {
    return topology_.node(node).kind == NodeKind::network || level_of(node) == Level::device_switch;
  }

  void draw_link(int index) {
    const Link& link = topology_.link(index);
    if (!drawn_.contains(link.from) || !drawn_.contains(link.to)) return;
    const auto [upper, lower] = level_of(link.from) <= level_of(link.to) ? std::pair(link.from, link.to)
                                                                         : std::pair(link.to, link.from);
    const Level above = level_of(upper);
    const Level below = level_of(lower);
    const auto found = busy_.find(index);
    const double share = found == busy_.end() ? 0 : found->second;
    const std::string what = fmt::format("{} {:.4g}", to_string(link.kind), link.bandwidth);
    const std::string busy = report_.simulation ? fmt::format("{:.0f}%", 100 * share) : "";
    const bool has_label =
        link.kind == LinkKind::network || nodes_[topology_.node(lower).host].size() <= few_nodes;
    const std::string tooltip = fmt::format("{} - {}: {} GB/s, {:.4g} us {}", topology_.node(link.from).name,
                                            topology_.node(link.to).name, what, link.latency, busy);
    const double width = 2 + std::log2(std::max(link.bandwidth, 1.0)) / 1.7;
    const std::string stroke =
        share > 0 ? fmt::format(R"(color="{}" penwidth={:.1f})", color_of_utilisation(share), width)
                  : R"(color="#b9c2ce" penwidth=1.5 style=dashed)";
    const bool is_beside = above == below && (above == Level::package || above == Level::device);
    // Leaves room for labels below the network, and for packages between NICs and PCIe switches.
    const bool is_long = above <= Level::network || (above == Level::nic && below == Level::bus_switch);
    if (above == Level::device && below == Level::device_switch)
      above_[column_of_.at(upper)] = fmt::format("n{}:l{}:s", lower, index);
    line(R"({}n{}{} -- n{}{} [label=<{}> tooltip="{}" {} minlen={} weight={}]{})",
         is_beside ? "{rank=same " : "", upper, is_bar(upper) ? fmt::format(":l{}:s", index) : "", lower,
         is_bar(lower) ? fmt::format(":l{}:n", index) : "", has_label ? what + "<br/>" + busy : "",
         escape(tooltip), stroke, is_long ? 2 : 1, below == Level::device_switch ? 50 : 1,
         is_beside ? "}" : "");
  }

  /// Draws the groups of a dimension in rows, without overlaps.
  void draw_dimension(int d) {
    std::vector<Lane> lanes;
    for (const std::vector<int>& group : groups_of(plan_, d, report_.root, most_groups)) {
      Lane lane;
      for (std::size_t place = 0; place < group.size(); ++place) {
        const int node = topology_.node_of_device(planner_.placement()[as_index(group[place])]);
        if (const auto found = column_of_.find(node); found != column_of_.end()) lane[found->second] = place;
      }
      if (group.size() > 1 && !lane.empty()) lanes.push_back(std::move(lane));
    }
    std::ranges::stable_sort(lanes, {}, [](const Lane& lane) { return lane.begin()->first; });
    std::vector<std::vector<Lane>> rows;
    std::size_t left_out = 0;
    for (const Lane& lane : lanes) {
      const auto row = std::ranges::find_if(rows, [&](const std::vector<Lane>& others) {
        return others.back().rbegin()->first < lane.begin()->first;
      });
      if (row != rows.end()) {
        row->push_back(lane);
      } else if (rows.size() < most_rows) {
        rows.push_back({lane});
      } else {
        ++left_out;
      }
    }
    for (const std::vector<Lane>& row : rows) {
      draw_row(d, row, &row == &rows.front() ? name_of_dimension(d, left_out) : "");
    }
  }

  [[nodiscard]] std::string name_of_dimension(int d, std::size_t left_out) const {
    const topology::Algorithm algorithm = plan_.dimensions[as_index(d)].algorithm;
    const bool is_chain = topology::traits_of(algorithm).is_ring && has_root(plan_.collective);
    std::string text = fmt::format(
        R"(<b>dimension {}</b><br align="left"/>{} of {}{}<br align="left"/>over {}<br align="left"/>)", d,
        is_chain ? "chain" : to_string(algorithm), plan_.decomposition.ragged() && d == 0 ? "up to " : "",
        plan_.decomposition.size(d), wires_of(topology_, planner_.placement(), plan_, d, report_.root));
    if (left_out > 0) text += fmt::format(R"(and {}<br align="left"/>)", count_text(left_out, "more group"));
    return text;
  }

  void draw_row(int d, const std::vector<Lane>& lanes, const std::string& name) {
    const std::string color = color_of_dimension(d);
    const bool is_ring =
        topology::traits_of(plan_.dimensions[as_index(d)].algorithm).is_ring && !has_root(plan_.collective);
    const std::size_t row = rows_++;
    if (row > 0) line("r{} -- r{} [style=invis]", row - 1, row);
    std::string columns;
    line(R"({{rank=same
r{} [shape=plain style="" fontcolor="{}" label=<{}>]
node [shape=circle style=filled color="{}" fontcolor=white fontsize=9 width=0.24 fixedsize=true]
edge [color="{}" penwidth=2])",
         row, color, name, color, is_ring ? color + ":white:" + color : color);
    std::string previous = fmt::format("r{}", row);
    for (const Lane& lane : lanes) {
      std::vector<std::string> stops;
      for (const auto& [column, place] : lane) {
        stops.push_back(fmt::format("s{}_{}", row, column));
        line("{} [label={}]", stops.back(), place);
        columns += fmt::format("{} -- {} [style=dotted color=\"#b9c2ce\" weight=100]\n",
                               std::exchange(above_[column], stops.back()), stops.back());
      }
      line("{} -- {} [style=invis]\n{}", previous, stops.front(), fmt::join(stops, " -- "));
      previous = stops.back();
    }
    line("}}\n{}", columns);
  }

  const topology::Planner& planner_;
  const topology::Topology& topology_;
  const PlanReport& report_;
  const topology::Plan& plan_;

  std::map<int, std::size_t> rank_of_;  // by node
  std::map<int, double> busy_;          // by link: utilisation of the busier direction
  std::size_t hosts_in_use_ = 0;
  std::vector<int> hosts_;                 // drawn
  std::map<int, std::vector<int>> nodes_;  // drawn, by host; -1: the network's
  std::map<int, std::size_t> left_out_;    // nodes by host
  std::set<int> drawn_;
  std::map<int, std::size_t> column_of_;  // drawn devices, from left to right
  std::vector<std::string> above_;        // by column: the lowest node so far
  std::size_t rows_ = 0;
  fmt::memory_buffer text_;
};

}  // namespace

std::string plan_dot(const topology::Planner& planner, const PlanReport& report) {
  return Drawing(planner, report).text();
}

std::string svg_of(const std::string& dot) {
  const collectives::FileDescriptor in(::memfd_create("plan.dot", MFD_CLOEXEC));
  const collectives::FileDescriptor out(::memfd_create("plan.svg", MFD_CLOEXEC));
  if (!in.valid() || !out.valid() ||
      ::pwrite(in.get(), dot.data(), dot.size(), 0) != static_cast<ssize_t>(dot.size())) {
    throw_io("write", "plan.dot", errno);
  }
  std::string program = "dot";
  std::string format = "-Tsvg";
  char* const arguments[] = {program.data(), format.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program.c_str(), &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    fail_with(ErrorCode::unsupported,
              "--svg: found no Graphviz that runs (dot: {}), expected it to draw the picture: apt install "
              "graphviz, or give a file named .dot to get the text that it draws",
              std::generic_category().message(error));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string svg(as_index(std::max<off_t>(0, ::lseek(out.get(), 0, SEEK_END))), '\0');
  if (status != 0 || ::pread(out.get(), svg.data(), svg.size(), 0) != static_cast<ssize_t>(svg.size())) {
    fail_with(ErrorCode::unsupported, "--svg: Graphviz's dot failed with status {}, expected 0", status);
  }
  return svg;
}

}  // namespace ddl::tools
