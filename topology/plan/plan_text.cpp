// Plans as text for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ddl/topology/plan.hpp"
#include "topology/plan/phases.hpp"
#include "topology/units.hpp"

namespace ddl::topology {
namespace {

/// "0..7", "0 4 8 12 1 5 ...".
std::string short_order(const std::vector<int>& order) {
  constexpr std::size_t most = 16;
  bool is_identity = true;
  for (std::size_t i = 0; i < order.size(); ++i) is_identity &= order[i] == static_cast<int>(i);
  if (is_identity && order.size() > 2) return fmt::format("0..{}", order.size() - 1);
  const auto shown = std::span(order).first(std::min(order.size(), most));
  return fmt::format("{}{}", fmt::join(shown, " "), order.size() > most ? " ..." : "");
}

/// "4x4", "4,4,4,4,4,...x16384".
std::string short_text(const Decomposition& decomposition) {
  constexpr int most_groups = 8;
  if (!decomposition.ragged() || decomposition.groups() <= most_groups) return to_string(decomposition);
  std::string text = fmt::format("{},...", fmt::join(decomposition.group_sizes().first(most_groups), ","));
  for (const int size : decomposition.outer()) text += fmt::format("x{}", size);
  return text;
}

}  // namespace

std::string summary(const Plan& plan) {
  std::string ways;
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    if (plan.decomposition.size(d) == 1) continue;
    const PlanDimension& dimension = plan.dimensions[as_index(d)];
    ways += fmt::format("{}{} {}", ways.empty() ? "" : " + ", to_string(dimension.algorithm),
                        carrier_text(dimension));
  }
  if (ways.empty()) ways = "nothing to move";
  return fmt::format("{} {} {}: {} {}, {}, {}, predicted {}", to_string(plan.collective),
                     format_bytes(static_cast<double>(plan.bytes)), to_string(plan.type),
                     short_text(plan.decomposition), plan.order_name, ways,
                     count_text(as_index(plan.chunks), "chunk"), format_us(plan.predicted_us));
}

std::string to_text(const Plan& plan) {
  std::string text = summary(plan) + '\n';
  text += fmt::format("  mode {} ({}), order {}, plan {:016x}\n", letter_of(plan.mode), to_string(plan.mode),
                      short_order(plan.order), hash(plan));

  const auto phases = phases_of(plan);
  if (!phases.empty()) {
    TextTable table({">", "phase", ">dimension", ">members", "algorithm", "carrier", ">rounds",
                     ">bytes a rank", ">one chunk"});
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const auto [kind, dimension] = phases[i];
      const PlanDimension& way = plan.dimensions[as_index(dimension)];
      const PhaseFigures figures = figures_of(plan, phases[i]);
      table.add({fmt::format("{}", i + 1), std::string(to_string(kind)), fmt::format("{}", dimension),
                 figures.members, std::string(to_string(way.algorithm)), carrier_text(way),
                 fmt::format("{}", figures.rounds), format_bytes(figures.bytes_per_rank),
                 i < plan.phase_us.size() ? format_us(plan.phase_us[i]) : "?"});
    }
    text += table.text();
  }
  if (plan.bound_us > 0) {
    text += fmt::format("  no plan can take less than {}; this one takes {:.2f} times as long\n",
                        format_us(plan.bound_us), plan.predicted_us / plan.bound_us);
  }
  for (const std::string& note : plan.notes) text += fmt::format("  note: {}\n", note);
  return text;
}

}  // namespace ddl::topology
