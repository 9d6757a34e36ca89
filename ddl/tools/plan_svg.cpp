#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "ddl/tools/plan_canvas.hpp"
#include "ddl/tools/plan_host_layout.hpp"
#include "ddl/tools/plan_report.hpp"
#include "ddl/tools/plan_units.hpp"
#include "ddl/tools/plan_wiring.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/units.hpp"

namespace ddl::tools {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::NodeKind;
using topology::Plan;
using topology::Planner;
using topology::Topology;

constexpr std::size_t most_hosts = 16;
constexpr std::size_t most_lanes = 16;
constexpr std::size_t most_groups = 4096;
constexpr double margin = 24;
constexpr double gutter = 168;  // space for the names of dimensions
constexpr double widest_row = 1560;
constexpr double host_gap = 20;
constexpr double bar_height = 26;
constexpr double uplink_height = 46;
constexpr double lane_height = 24;
constexpr double stop_radius = 8.5;

constexpr std::array<const char*, 6> dimension_colors = {"#2563c9", "#7d3cb5", "#0b7f76",
                                                         "#4a7d12", "#53627a", "#8a5a2b"};

std::string color_of_dimension(int dimension) {
  return dimension_colors[as_index(dimension) % dimension_colors.size()];
}

std::string color_of_utilisation(double share) {
  constexpr std::array<std::array<double, 3>, 5> stops = {
      {{203, 210, 220}, {246, 208, 98}, {244, 157, 60}, {226, 88, 48}, {160, 18, 44}}};
  const double at = std::clamp(share, 0.0, 1.0) * (stops.size() - 1);
  const auto low = std::min(as_index(at), stops.size() - 2);
  const double part = at - static_cast<double>(low);
  std::string text = "#";
  for (std::size_t i = 0; i < 3; ++i) {
    text += fmt::format("{:02x}",
                        static_cast<int>(std::lround(stops[low][i] * (1 - part) + stops[low + 1][i] * part)));
  }
  return text;
}

std::string cut(std::string text, double width, const TextStyle& style) {
  while (text.size() > 4 && text_width(text, style) > width) text.replace(text.size() - 4, 4, "...");
  return text;
}

class Picture {
 public:
  Picture(const Planner& planner, const PlanReport& report)
      : topology_(planner.topology()), planner_(planner), report_(report), plan_(report.plan) {
    for (std::size_t rank = 0; rank < planner.placement().size(); ++rank) {
      const int device = planner.placement()[rank];
      rank_of_node_[topology_.node_of_device(device)] = static_cast<int>(rank);
    }
    if (report.simulation) {
      for (const topology::ChannelUse& use : report.simulation->channels) {
        double& share = busy_[topology::link_of(use.channel)];
        share = std::max(share, use.utilisation);
      }
    }
    choose_hosts();
    arrange_hosts();
    place_network();
    place_rows();
  }

  std::string draw() {
    draw_titles();
    for (std::size_t i = 0; i < hosts_.size(); ++i) draw_host_frame(i);
    if (hosts_left_out_ > 0) draw_left_out();
    draw_lanes();
    draw_links();
    draw_nodes();
    for (const auto& [at, text, style] : labels_) canvas_.label(at, text, style);
    draw_legend();
    return canvas_.document(width_, height_, title());
  }

 private:
  struct Host {
    int index = 0;
    HostLayout layout;
    Box box;
    std::size_t row = 0;
  };
  /// The part of a group of ranks that is in one row of hosts.
  struct Lane {
    int dimension = 0;
    std::size_t group = 0;
    std::vector<std::pair<double, std::size_t>> stops;  // x coordinate, and place in the group
    bool goes_on = false;                               // the group has ranks in other rows, or undrawn ones
    std::size_t line = 0;
  };
  struct DimensionRow {
    double y = 0;
    std::size_t lines = 0;
    std::size_t left_out = 0;
    std::vector<Lane> lanes;
  };
  struct Label {
    Point at;
    std::string text;
    TextStyle style;
  };

  void choose_hosts() {
    std::set<int> in_use;
    for (const auto& [node, rank] : rank_of_node_) in_use.insert(topology_.node(node).host);
    std::vector<std::vector<int>> nodes(topology_.hosts().size());
    for (int node = 0; node < static_cast<int>(topology_.nodes().size()); ++node) {
      const int host = topology_.node(node).host;
      (host < 0 ? networks_ : nodes[as_index(host)]).push_back(node);
    }
    hosts_without_ranks_ = nodes.size() - in_use.size();
    const std::size_t drawn = in_use.size() <= most_hosts ? in_use.size() : most_hosts - 1;
    hosts_left_out_ = in_use.size() - drawn;
    for (const int host : in_use) {
      if (hosts_.size() < drawn)
        hosts_.push_back({host, lay_out_host(topology_, nodes[as_index(host)]), {}, 0});
    }
    if (in_use.size() == 1) networks_.clear();
  }

  void arrange_hosts() {
    double widest = 0;
    for (const Host& host : hosts_) {
      widest = std::max(widest, std::max(host.layout.width, text_width(host_name(host), host_title_) + 24));
    }
    const std::size_t cells = hosts_.size() + (hosts_left_out_ > 0 ? 1 : 0);
    auto in_row = std::max<std::size_t>(1, as_index((widest_row + host_gap) / (widest + host_gap)));
    if (networks_.size() > 1) in_row = cells;  // several levels of switches need a single row below them
    in_row = std::min(in_row, cells);
    rows_ = (cells + in_row - 1) / in_row;
    in_row = (cells + rows_ - 1) / rows_;
    for (std::size_t i = 0; i < cells; ++i) {
      const Box box = {margin + gutter + static_cast<double>(i % in_row) * (widest + host_gap), 0, widest, 0};
      if (i == hosts_.size()) {
        left_out_box_ = box;
        continue;
      }
      hosts_[i].box = box;
      hosts_[i].row = i / in_row;
    }
    row_width_ = static_cast<double>(in_row) * (widest + host_gap) - host_gap;
  }

  /// Assigns network switches to levels: those linked to NICs are at the bottom.
  void place_network() {
    std::set<int> placed;
    std::vector<int> level;
    for (const int node : networks_) {
      const bool at_nic = std::ranges::any_of(topology_.links_at(node), [&](int link) {
        return topology_.node(topology_.other_end(link, node)).kind == NodeKind::nic;
      });
      if (at_nic) level.push_back(node);
    }
    while (!level.empty()) {
      placed.insert(level.begin(), level.end());
      levels_.push_back(level);
      std::set<int> next;
      for (const int node : level) {
        for (const int link : topology_.links_at(node)) {
          const int other = topology_.other_end(link, node);
          if (topology_.node(other).kind == NodeKind::network && !placed.contains(other)) next.insert(other);
        }
      }
      level.assign(next.begin(), next.end());
    }
  }

  void place_rows() {
    const double subtitle_y = margin + 40;
    double y = subtitle_y + (hosts_without_ranks_ > 0 || report_.not_simulated.size() > 0 ? 36 : 20);
    const bool one_bar = networks_.size() == 1;
    if (networks_.size() > 1) y += static_cast<double>(levels_.size() - 1) * (bar_height + uplink_height);
    const double left = margin + gutter;
    for (std::size_t row = 0; row < rows_; ++row) {
      if (!networks_.empty()) {
        const double trunk = rows_ > 1 && one_bar ? 30 : 0;
        if (one_bar) bars_.push_back({left, y, row_width_ + trunk, bar_height});
        network_y_ = row == 0 ? y : network_y_;
        y += bar_height + uplink_height;
      }
      double height = 0;
      for (const Host& host : hosts_) {
        if (host.row == row) height = std::max(height, host.layout.height);
      }
      for (Host& host : hosts_) {
        if (host.row != row) continue;
        host.box.y = y;
        host.box.height = height;
        const double indent = (host.box.width - host.layout.width) / 2;
        for (const auto& [node, box] : host.layout.boxes) {
          boxes_[node] = {host.box.x + indent + box.x, y + box.y, box.width, box.height};
        }
      }
      if (hosts_left_out_ > 0 && row + 1 == rows_) {
        left_out_box_.y = y;
        left_out_box_.height = height;
      }
      y += height + 12;
      y = place_lanes(row, y) + 30;
    }
    if (networks_.size() > 1) place_network_boxes();
    legend_y_ = y - 10;
    width_ = std::max({left + row_width_ + (rows_ > 1 && one_bar ? 30 : 0) + margin,
                       text_width(title(), title_style_) + 2 * margin,
                       text_width(subtitle(), subtitle_style_) + 2 * margin, 860.0});
    for (const std::string& text : legend()) width_ = std::max(width_, text_width(text, small_) + 316);
    height_ = legend_y_ + 88;
  }

  void place_network_boxes() {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      std::vector<RowNode> row;
      for (const int node : levels_[level]) {
        std::vector<double> middles;
        for (const int link : topology_.links_at(node)) {
          const auto other = boxes_.find(topology_.other_end(link, node));
          if (other != boxes_.end()) middles.push_back(other->second.middle());
        }
        const double width = std::max(90.0, text_width(topology_.node(node).name, {}) + 20);
        row.push_back({node, mean(middles, margin + gutter + row_width_), width});
      }
      const double y = network_y_ - static_cast<double>(level) * (bar_height + uplink_height);
      place_row(boxes_, std::move(row), y, bar_height, 20, margin);
    }
  }

  /// Places the lanes of all dimensions below a row of hosts. Returns the y coordinate below the lanes.
  double place_lanes(std::size_t row, double y) {
    for (int d = 0; d < plan_.decomposition.dimensions(); ++d) {
      if (plan_.decomposition.size(d) == 1) continue;
      DimensionRow lanes;
      const auto groups = groups_of(plan_, d, report_.root, most_groups);
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].size() < 2) continue;
        Lane lane;
        lane.dimension = d;
        lane.group = g;
        for (std::size_t i = 0; i < groups[g].size(); ++i) {
          const int node = topology_.node_of_device(planner_.placement()[as_index(groups[g][i])]);
          const auto box = boxes_.find(node);
          const bool is_here = box != boxes_.end() && row_of(node) == row;
          if (is_here) lane.stops.emplace_back(box->second.middle(), i);
          lane.goes_on = lane.goes_on || !is_here;
        }
        std::ranges::sort(lane.stops);
        if (!lane.stops.empty()) lanes.lanes.push_back(std::move(lane));
      }
      std::ranges::stable_sort(lanes.lanes, {}, [](const Lane& lane) { return lane.stops.front().first; });
      std::vector<double> ends;  // right end of each line
      for (Lane& lane : lanes.lanes) {
        const double begin = lane.goes_on ? 0 : lane.stops.front().first;
        while (lane.line < ends.size() && ends[lane.line] + 5 * stop_radius > begin) ++lane.line;
        if (lane.line >= most_lanes) continue;
        ends.resize(std::max(ends.size(), lane.line + 1));
        ends[lane.line] = lane.goes_on ? 1e9 : lane.stops.back().first;
      }
      lanes.left_out = std::erase_if(lanes.lanes, [](const Lane& lane) { return lane.line >= most_lanes; });
      lanes.lines = ends.size();
      lanes.y = y;
      const double names_height = 3 * 14 + (lanes.left_out > 0 ? 14 : 0) + 8;
      y += std::max(static_cast<double>(lanes.lines) * lane_height, names_height) + 10;
      lanes_[{row, d}] = std::move(lanes);
    }
    lanes_end_[row] = y - 10;
    return y;
  }

  [[nodiscard]] std::size_t row_of(int node) const {
    const int host = topology_.node(node).host;
    const auto found = std::ranges::find(hosts_, host, &Host::index);
    return found == hosts_.end() ? SIZE_MAX : found->row;
  }

  [[nodiscard]] std::string host_name(const Host& host) const {
    std::string name = topology_.hosts()[as_index(host.index)];
    if (host.layout.devices_left_out > 0)
      name += fmt::format(" (and {} more devices)", host.layout.devices_left_out);
    return name;
  }

  [[nodiscard]] std::string title() const {
    return fmt::format("{} of {} {} among {} on {}", to_string(plan_.collective),
                       topology::format_bytes(static_cast<double>(plan_.bytes)), to_string(plan_.type),
                       count_text(as_index(plan_.decomposition.ranks()), "rank"), report_.topology_name);
  }

  [[nodiscard]] std::string subtitle() const {
    std::string text = cut(short_name(plan_), 700, subtitle_style_);
    text += fmt::format("; predicted {}", topology::format_us(plan_.predicted_us));
    if (report_.simulation)
      text += fmt::format(", simulated {}", topology::format_us(report_.simulation->total_us));
    text += fmt::format(", bound {}", topology::format_us(plan_.bound_us));
    return text;
  }

  void draw_titles() {
    canvas_.text({margin, margin + 16}, title(), title_style_);
    canvas_.text({margin, margin + 40}, subtitle(), subtitle_style_);
    std::string note;
    if (!report_.simulation) note = "not simulated: too large";
    if (hosts_without_ranks_ > 0) {
      note += fmt::format("{}{} without ranks not drawn", note.empty() ? "" : "; ",
                          count_text(hosts_without_ranks_, "host"));
    }
    if (!note.empty()) canvas_.text({margin, margin + 58}, note, small_);
  }

  void draw_host_frame(std::size_t i) {
    const Host& host = hosts_[i];
    canvas_.rectangle(host.box, "#f7f9fb", {"#c2cad6", 1, ""}, 8);
    canvas_.text({host.box.x + 10, host.box.y + 16}, cut(host_name(host), host.box.width - 20, host_title_),
                 host_title_);
  }

  void draw_left_out() {
    const Box& box = left_out_box_;
    canvas_.rectangle(box, "none", {"#9aa5b5", 1, "5 4"}, 8);
    canvas_.text({box.middle(), box.y + box.height / 2},
                 fmt::format("... {}", count_text(hosts_left_out_, "more host")),
                 {host_title_.size, host_title_.color, "middle", true});
  }

  [[nodiscard]] double utilisation(int link) const {
    const auto found = busy_.find(link);
    return found != busy_.end() ? found->second : 0;
  }

  [[nodiscard]] std::string link_tooltip(int index) const {
    const Link& link = topology_.link(index);
    std::string text =
        fmt::format("{} - {}: {} {:.4g} GB/s, {:.4g} us", topology_.node(link.from).name,
                    topology_.node(link.to).name, to_string(link.kind), link.bandwidth, link.latency);
    if (report_.simulation) text += fmt::format(", busy {:.0f}%", 100 * utilisation(index));
    return text;
  }

  void draw_links() {
    // Busy links are drawn last, so that they cover idle ones.
    std::vector<int> order;
    for (std::size_t i = 0; i < topology_.links().size(); ++i) {
      const Link& link = topology_.links()[i];
      if (is_drawn(link.from) && is_drawn(link.to)) order.push_back(static_cast<int>(i));
    }
    std::ranges::stable_sort(order, {}, [&](int link) { return utilisation(link); });
    for (const int link : order) draw_link(link);
  }

  [[nodiscard]] bool is_drawn(int node) const {
    if (topology_.node(node).kind == NodeKind::network && !bars_.empty()) return true;
    return boxes_.contains(node);
  }

  [[nodiscard]] Box box_of(int node, int other) const {
    if (const auto found = boxes_.find(node); found != boxes_.end()) return found->second;
    // The point of the network bar directly above the other end.
    Box bar = bars_[row_of(other)];
    bar.x = boxes_.at(other).middle();
    bar.width = 0;
    return bar;
  }

  void draw_link(int index) {
    const Link& link = topology_.link(index);
    const double share = utilisation(index);
    const double width = 2 + std::log2(std::max(link.bandwidth, 1.0)) / 1.7;
    const Stroke stroke = share > 0 ? Stroke{color_of_utilisation(share), width, ""}
                                    : Stroke{color_of_utilisation(0), std::min(width, 2.0), "4 3"};
    const std::string tooltip = link_tooltip(index);
    Box upper = box_of(link.from, link.to);
    Box lower = box_of(link.to, link.from);
    if (upper.y > lower.y) std::swap(upper, lower);
    Point label{};
    if (upper.y == lower.y) {
      const Box& left = upper.x < lower.x ? upper : lower;
      const Box& right = upper.x < lower.x ? lower : upper;
      if (!is_anything_between(left, right)) {
        const double y = left.y + left.height / 2;
        canvas_.line({left.right(), y}, {right.x, y}, stroke, tooltip);
        label = {(left.right() + right.x) / 2, y};
        if (right.x - left.right() < 30) label.y -= 12;
      } else {
        // The arc goes below devices and above other nodes.
        const bool below = topology::is_device(topology_.node(link.from).kind);
        const double from = left.middle() + left.width / 5;
        const double to = right.middle() - right.width / 5;
        const double y = below ? left.bottom() : left.y;
        const double depth = (below ? 1 : -1) * std::max(16.0, (to - from) / 6.5);
        canvas_.path(fmt::format("M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", from, y, from,
                                 y + depth, to, y + depth, to, y),
                     stroke, "none", tooltip);
        return;
      }
    } else {
      // Each end is on its box, towards the other end; a link to a much wider box below goes straight down.
      const auto reach = [](const Box& box, double x) {
        const double half = std::max(box.width / 3, box.width / 2 - 12);
        return std::clamp(x, box.middle() - half, box.middle() + half);
      };
      const bool onto_wide = lower.width > 3 * upper.width && upper.width > 0;
      const Point from = {onto_wide ? upper.middle() : reach(upper, lower.middle()), upper.bottom()};
      const Point to = {reach(lower, from.x), lower.y};
      canvas_.line(from, to, stroke, tooltip);
      const double at = link.kind == LinkKind::network ? 0.3 : 0.55;
      label = {from.x + at * (to.x - from.x), from.y + at * (to.y - from.y)};
    }
    const auto is_device = [&](int node) { return topology::is_device(topology_.node(node).kind); };
    const bool is_crowded =
        (is_device(link.from) || is_device(link.to)) && hosts_[0].layout.boxes.size() > 14;
    if (share >= 0.005 && !is_crowded) {
      labels_.push_back({label, fmt::format("{:.0f}%", 100 * share), {10, small_.color}});
    }
  }

  [[nodiscard]] bool is_anything_between(const Box& left, const Box& right) const {
    return std::ranges::any_of(boxes_, [&](const auto& entry) {
      const Box& box = entry.second;
      return box.y == left.y && box.x > left.x && box.x < right.x;
    });
  }

  void draw_nodes() {
    if (bars_.size() > 1) {
      const Box& first = bars_.front();
      canvas_.rectangle({first.right() - 14, first.y, 14, bars_.back().bottom() - first.y}, "#e4ebf5",
                        {"#7f8fa9", 1, ""}, 4);
    }
    for (const Box& bar : bars_) {
      canvas_.rectangle(bar, "#e4ebf5", {"#7f8fa9", 1, ""}, 4, topology_.node(networks_[0]).name);
    }
    for (const Box& bar : bars_) {
      if (bars_.size() > 1)
        canvas_.rectangle({bar.right() - 18, bar.y + 1.5, 16, bar.height - 3}, "#e4ebf5", {});
      canvas_.text({bar.x + 12, bar.y + 17}, topology_.node(networks_[0]).name, host_title_);
    }
    for (const auto& [node, box] : boxes_) draw_node(node, box);
  }

  void draw_node(int index, const Box& box) {
    const topology::Node& node = topology_.node(index);
    TextStyle style;
    style.anchor = "middle";
    const std::string name = cut(std::string(short_name(node)), box.width - 4, style);
    if (!topology::is_device(node.kind)) {
      const char* fill = node.kind == NodeKind::nic       ? "#fff7e0"
                         : node.kind == NodeKind::package ? "#e9eef5"
                         : node.kind == NodeKind::network ? "#e4ebf5"
                                                          : "#e6f2ec";
      canvas_.rectangle(box, fill, {"#7f8fa9", 1, ""}, 4, node.name);
      canvas_.text({box.middle(), box.y + box.height / 2 + 4}, name, style);
      return;
    }
    const auto rank = rank_of_node_.find(index);
    const bool has_rank = rank != rank_of_node_.end();
    canvas_.rectangle(box, has_rank ? "#ffffff" : "#eff1f4",
                      {has_rank ? "#33415c" : "#a7b0bf", has_rank ? 1.4 : 1, ""}, 4, node.name);
    style.color = has_rank ? "#1f2937" : "#8a94a3";
    canvas_.text({box.middle(), box.y + 15}, name, style);
    style.bold = has_rank;
    canvas_.text({box.middle(), box.y + 29}, has_rank ? fmt::format("rank {}", rank->second) : "no rank",
                 style);
  }

  void draw_lanes() {
    for (const auto& [node, rank] : rank_of_node_) {
      const auto box = boxes_.find(node);
      if (box == boxes_.end()) continue;
      const double end = lanes_end_[row_of(node)];
      canvas_.line({box->second.middle(), box->second.bottom()}, {box->second.middle(), end},
                   {"#d3d9e2", 1, "2 3"});
    }
    for (const auto& [key, lanes] : lanes_) {
      draw_dimension_name(key.second, lanes);
      for (const Lane& lane : lanes.lanes) draw_lane(lane, lanes.y);
    }
  }

  void draw_dimension_name(int d, const DimensionRow& lanes) {
    const topology::PlanDimension& dimension = plan_.dimensions[as_index(d)];
    double y = lanes.y + 14;
    canvas_.text({margin, y}, fmt::format("dimension {}", d),
                 {host_title_.size, color_of_dimension(d), "start", true});
    const std::string size = fmt::format("{}{}", plan_.decomposition.ragged() && d == 0 ? "up to " : "",
                                         plan_.decomposition.size(d));
    std::string algorithm(to_string(dimension.algorithm));
    std::ranges::replace(algorithm, '_', '-');
    const bool is_chain = topology::traits_of(dimension.algorithm).is_ring && has_root(plan_.collective);
    if (is_chain) algorithm = "chain";
    canvas_.text({margin, y += 14}, cut(fmt::format("{} of {}", algorithm, size), gutter - 10, small_),
                 small_);
    const std::string wires = wires_of(topology_, planner_.placement(), plan_, d, report_.root);
    canvas_.text({margin, y += 14}, cut("over " + wires, gutter - 10, small_), small_);
    if (lanes.left_out > 0) {
      canvas_.text({margin, y += 14}, fmt::format("... {}", count_text(lanes.left_out, "more group")),
                   small_);
    }
  }

  void draw_lane(const Lane& lane, double top) {
    const std::string color = color_of_dimension(lane.dimension);
    const double y = top + (static_cast<double>(lane.line) + 0.5) * lane_height;
    const double row_left = margin + gutter;
    const double from = lane.goes_on ? row_left - 2 : lane.stops.front().first;
    const double to = lane.goes_on ? row_left + row_width_ : lane.stops.back().first;
    const bool is_ring = topology::traits_of(plan_.dimensions[as_index(lane.dimension)].algorithm).is_ring &&
                         !has_root(plan_.collective);
    const Stroke stroke = {color, 1.8, ""};
    if (is_ring) {
      constexpr double half = 4.5;
      if (lane.goes_on) {
        canvas_.line({from, y - half}, {to, y - half}, stroke);
        canvas_.line({from, y + half}, {to, y + half}, stroke);
      } else {
        canvas_.rectangle({from - 16, y - half, to - from + 32, 2 * half}, "#ffffff", stroke, half);
      }
    } else {
      canvas_.line({from, y}, {to, y}, {color, 3, ""});
    }
    if (lane.goes_on) {
      canvas_.text({row_left - 6, y + 4}, std::to_string(lane.group), {small_.size, color, "end", true});
    }
    for (const auto& [x, place] : lane.stops) {
      canvas_.circle({x, y}, stop_radius, color);
      const TextStyle style{place < 100 ? 9.5 : 7.5, "#ffffff", "middle", true};
      if (place < 1000) canvas_.text({x, y + style.size * 0.36}, std::to_string(place), style);
    }
  }

  void draw_legend() {
    constexpr double bar_width = 240;
    constexpr std::size_t steps = 44;
    const double y = legend_y_;
    canvas_.line({margin, y}, {width_ - margin, y}, {"#d3d9e2", 1, ""});
    for (std::size_t i = 0; i < steps; ++i) {
      const double share = (static_cast<double>(i) + 0.5) / steps;
      canvas_.rectangle(
          {margin + bar_width * static_cast<double>(i) / steps, y + 16, bar_width / steps + 0.5, 10},
          color_of_utilisation(share), {});
    }
    for (const int percent : {0, 25, 50, 75, 100}) {
      const char* const anchor = percent == 0 ? "start" : percent == 100 ? "end" : "middle";
      canvas_.text({margin + bar_width * percent / 100, y + 40}, fmt::format("{}%", percent),
                   {small_.size, small_.color, anchor});
    }
    const double x = margin + bar_width + 28;
    double line = y + 8;
    for (const std::string& text : legend()) canvas_.text({x, line += 16}, text, small_);
  }

  [[nodiscard]] std::vector<std::string> legend() const {
    std::map<LinkKind, std::set<double>> kinds;
    for (const Link& link : topology_.links()) {
      if (is_drawn(link.from) && is_drawn(link.to)) kinds[link.kind].insert(link.bandwidth);
    }
    std::string wires;
    for (const auto& [kind, bandwidths] : kinds) {
      wires += fmt::format("{}{} {:.4g}", wires.empty() ? "" : ", ", to_string(kind), *bandwidths.begin());
      if (bandwidths.size() > 1) wires += fmt::format(" to {:.4g}", *bandwidths.rbegin());
    }
    return {report_.simulation
                ? "Links: share of the time that their busier direction is busy, simulated; dashed: not used."
                : "Links: not simulated, so none is coloured.",
            "Wider links have more GB/s: " + wires + ".",
            "Below the hosts: a line is a group of ranks that work together, a stop is a rank,",
            "numbered in the group's order. Double line: a ring; single line: another algorithm."};
  }

  const Topology& topology_;
  const Planner& planner_;
  const PlanReport& report_;
  const Plan& plan_;
  const TextStyle title_style_ = {18, "#111827", "start", true};
  const TextStyle subtitle_style_ = {13, "#374151", "start", false};
  const TextStyle host_title_ = {12, "#374151", "start", true};
  const TextStyle small_ = {11, "#4b5563", "start", false};

  Canvas canvas_;
  std::map<int, int> rank_of_node_;
  std::map<int, double> busy_;  // by link: utilisation of the busier direction
  std::vector<int> networks_;
  std::vector<std::vector<int>> levels_;
  std::vector<Host> hosts_;
  std::size_t hosts_left_out_ = 0;
  std::size_t hosts_without_ranks_ = 0;
  Box left_out_box_;
  std::size_t rows_ = 1;
  double row_width_ = 0;
  double network_y_ = 0;
  std::vector<Box> bars_;  // if there is only one network node, its bar above each row
  std::map<int, Box> boxes_;
  std::map<std::pair<std::size_t, int>, DimensionRow> lanes_;
  std::map<std::size_t, double> lanes_end_;
  std::vector<Label> labels_;
  double legend_y_ = 0;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace

std::string plan_svg(const Planner& planner, const PlanReport& report) {
  return Picture(planner, report).draw();
}

}  // namespace ddl::tools
