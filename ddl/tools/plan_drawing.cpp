// Draws plans with Graphviz (https://graphviz.org/doc/info/lang.html).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "ddl/tools/plan_report.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeKind;

constexpr std::size_t most_hosts = 8;
constexpr std::size_t most_nodes = 48;  // of a host, and of the network
constexpr std::size_t most_groups = 8;  // of a dimension
constexpr std::size_t few_nodes = 14;   // of a host whose links all have labels

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
graph [labelloc=t labeljust=l newrank=true nodesep=0.3 ranksep=0.5 pad=0.3 fontname="Helvetica,Arial,sans-serif"]
graph [fontsize=12 fontcolor="#374151" label=<{}>]
node [fontname="Helvetica,Arial,sans-serif" fontsize=11 shape=box style="rounded,filled" height=0.3 margin="0.08,0.04"]
edge [fontname="Helvetica,Arial,sans-serif" fontsize=9 fontcolor="#4b5563"])",
         heading());
    for (const int node : nodes_[-1]) draw_node(node);
    for (const int host : hosts_) {
      const std::string more =
          left_out_[host] > 0 ? fmt::format(" (and {})", count_text(left_out_[host], "more node")) : "";
      line(
          R"(subgraph cluster_{} {{ label="{}{}" style="rounded,filled" fillcolor="#f7f9fb" color="#c2cad6")",
          host, escape(topology_.hosts()[as_index(host)]), more);
      for (const int node : nodes_[host]) draw_node(node);
      line("}}");
    }
    for (int link = 0; link < static_cast<int>(topology_.links().size()); ++link) draw_link(link);
    for (int d = 0; d < plan_.decomposition.dimensions(); ++d) {
      if (plan_.decomposition.size(d) > 1) draw_dimension(d);
    }
    return fmt::to_string(text_) + "}\n";
  }

 private:
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
    for (int index = 0; index < static_cast<int>(topology_.nodes().size()); ++index) {
      const int host = topology_.node(index).host;
      if (host < 0 ? hosts_in_use_ == 1 : !std::ranges::binary_search(hosts_, host)) continue;
      if (nodes_[host].size() == most_nodes) {
        ++left_out_[host];
        continue;
      }
      nodes_[host].push_back(index);
      drawn_.insert(index);
      if (rank_of_.contains(index) && above_.empty()) above_ = fmt::format("n{}", index);
    }
  }

  [[nodiscard]] std::string heading() const {
    std::vector<std::string> lines;
    lines.push_back(fmt::format("{}; predicted {}, bound {}", short_name(plan_),
                                format_us(plan_.predicted_us), format_us(plan_.bound_us)));
    if (report_.simulation) {
      lines.back() += fmt::format(", simulated {}", format_us(report_.simulation->total_us));
      lines.emplace_back(
          "Links: how much of the time the busier direction is busy, simulated; dashed: not used.");
      for (int percent = 0; percent <= 100; percent += 20) {
        lines.back() += fmt::format("  <font color=\"{}\">&#9632;</font> {}%",
                                    color_of_utilisation(percent / 100.0), percent);
      }
    } else {
      lines.emplace_back("Links have no colours: the plan is too large to simulate.");
    }
    lines.emplace_back("Below the hosts: a line joins ranks that work together; a double line is a ring.");
    const auto add_left_out = [&](std::size_t count, std::string_view what, std::string_view which) {
      if (count > 0) lines.push_back(fmt::format("{}{} not drawn.", count_text(count, what), which));
    };
    if (const auto found = left_out_.find(-1); found != left_out_.end()) {
      add_left_out(found->second, "more network node", "");
    }
    add_left_out(hosts_in_use_ - hosts_.size(), "more host", "");
    add_left_out(topology_.hosts().size() - hosts_in_use_, "host", " without ranks");
    std::string text = fmt::format(
        R"(<table border="0" cellspacing="0" cellpadding="1"><tr><td align="left"><font point-size="18"><b>{}</b></font></td></tr>)",
        escape(fmt::format("{} of {} {} among {} on {}", to_string(plan_.collective),
                           format_bytes(static_cast<double>(plan_.bytes)), to_string(plan_.type),
                           count_text(rank_of_.size(), "rank"), report_.topology_name)));
    for (const std::string& each : lines) text += fmt::format(R"(<tr><td align="left">{}</td></tr>)", each);
    return text + "</table>";
  }

  void draw_node(int index) {
    const Node& node = topology_.node(index);
    const auto rank = rank_of_.find(index);
    const bool has_rank = rank != rank_of_.end();
    const bool is_device = topology::is_device(node.kind);
    const std::string whose = has_rank    ? fmt::format("<br/><b>rank {}</b>", rank->second)
                              : is_device ? "<br/>no rank"
                                          : "";
    const char* const fill = node.kind == NodeKind::nic       ? "#fff7e0"
                             : node.kind == NodeKind::package ? "#e9eef5"
                             : has_rank                       ? "#ffffff"
                             : is_device                      ? "#eff1f4"
                                                              : "#e6f2ec";
    line(R"(n{} [label=<{}{}> fillcolor="{}" color="#7f8fa9"])", index,
         escape(std::string_view(node.name).substr(node.name.find('/') + 1)), whose, fill);
  }

  /// From top to bottom: the network, NICs, packages, switches, devices.
  [[nodiscard]] int level_of(int node) const {
    constexpr std::array levels = {NodeKind::network, NodeKind::nic, NodeKind::package, NodeKind::fabric};
    return static_cast<int>(std::ranges::find(levels, topology_.node(node).kind) - levels.begin());
  }

  void draw_link(int index) {
    const Link& link = topology_.link(index);
    if (!drawn_.contains(link.from) || !drawn_.contains(link.to)) return;
    const bool is_beside = level_of(link.from) == level_of(link.to);
    const bool goes_up = level_of(link.from) > level_of(link.to);
    const auto found = busy_.find(index);
    const double share = found == busy_.end() ? 0 : found->second;
    const std::string what = fmt::format("{} {:.4g}", to_string(link.kind), link.bandwidth);
    const std::string busy = report_.simulation ? fmt::format("{:.0f}%", 100 * share) : "";
    const int host = std::max(topology_.node(link.from).host, topology_.node(link.to).host);
    const bool has_label = link.kind == LinkKind::network || nodes_[host].size() <= few_nodes;
    const std::string stroke = share > 0
                                   ? fmt::format(R"(color="{}" penwidth={:.1f})", color_of_utilisation(share),
                                                 2 + std::log2(std::max(link.bandwidth, 1.0)) / 1.7)
                                   : R"(color="#b9c2ce" penwidth=1.5 style=dashed)";
    line(R"({}n{} -- n{} [label=<{}> {}]{})", is_beside ? "{rank=same " : "", goes_up ? link.to : link.from,
         goes_up ? link.from : link.to, has_label ? what + "<br/>" + busy : "", stroke, is_beside ? "}" : "");
  }

  /// A row with the ranks of each group.
  void draw_dimension(int d) {
    const topology::Algorithm algorithm = plan_.dimensions[as_index(d)].algorithm;
    const bool goes_around = topology::traits_of(algorithm).is_ring;
    const bool is_ring = goes_around && !has_root(plan_.collective);
    const std::string color = color_of_dimension(d);
    const auto groups = groups_of(plan_, d, report_.root, most_groups + 1);
    const std::string name = fmt::format(
        R"(<b>dimension {}</b><br align="left"/>{} of {}{}<br align="left"/>over {}<br align="left"/>{})", d,
        goes_around && !is_ring ? "chain" : to_string(algorithm),
        plan_.decomposition.ragged() && d == 0 ? "up to " : "", plan_.decomposition.size(d),
        wires_of(topology_, planner_.placement(), plan_, d, report_.root),
        groups.size() > most_groups ? R"(and more groups<br align="left"/>)" : "");
    line(R"({} -- d{} [style=invis]
{{rank=same
d{} [shape=plain style="" fontcolor="{}" label=<{}>]
node [shape=circle style=filled color="{}" fontcolor=white fontsize=9 width=0.24 fixedsize=true]
edge [color="{}" penwidth=2])",
         above_, d, d, color, name, color, is_ring ? color + ":white:" + color : color);
    std::string previous = above_ = fmt::format("d{}", d);
    for (std::size_t g = 0; g < std::min(groups.size(), most_groups); ++g) {
      std::vector<std::string> stops;
      for (const int rank : std::span(groups[g]).first(std::min(groups[g].size(), most_nodes))) {
        stops.push_back(fmt::format("d{}_{}_{}", d, g, rank));
        line("{} [label={}]", stops.back(), rank);
      }
      line("{} -- {} [style=invis]\n{}", previous, stops.front(), fmt::join(stops, " -- "));
      previous = stops.back();
    }
    line("}}");
  }

  const topology::Planner& planner_;
  const topology::Topology& topology_;
  const PlanReport& report_;
  const topology::Plan& plan_;
  std::map<int, std::size_t> rank_of_;  // by node
  std::map<int, double> busy_;          // by link: the larger utilisation of its two directions
  std::size_t hosts_in_use_ = 0;
  std::vector<int> hosts_;                 // the drawn ones
  std::map<int, std::vector<int>> nodes_;  // drawn nodes by host; -1: the network's
  std::map<int, std::size_t> left_out_;    // by host
  std::set<int> drawn_;
  std::string above_;  // a node of the row above the next dimension
  fmt::memory_buffer text_;
};

}  // namespace

std::string plan_dot(const topology::Planner& planner, const PlanReport& report) {
  return Drawing(planner, report).text();
}

}  // namespace ddl::tools
