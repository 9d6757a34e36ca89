// Plans as text for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddl/topology/plan.hpp"
#include "topology/json_fields.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

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
  const std::size_t further = plan.further_orders.size();
  text += fmt::format("  mode {} ({}), order {}{}, plan {:016x}\n", letter_of(plan.mode),
                      to_string(plan.mode), short_order(plan.order),
                      further > 0 ? fmt::format(" and {} more", further) : "", hash(plan));

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

// Plans as JSON.

template <typename Fields, MaybeConst<PlanDimension> Dimension>
static void describe(Fields& fields, Dimension& dimension) {
  fields("algorithm", dimension.algorithm, all_algorithms());
  fields("carrier", dimension.carrier, all_to<Carrier::host_memory>);
  fields.optional("wire", dimension.wire, std::nullopt, std::array{DataType::bf16, DataType::f16});
}

namespace {

/// A plan with its decomposition as text, which can be parsed only when the number of ranks is known.
struct PlanFile {
  Plan plan;
  std::string decomposition;
};

template <typename Fields, MaybeConst<PlanFile> File>
void describe(Fields& fields, File& file) {
  constexpr int most_ranks = 1 << 24;
  constexpr std::size_t longest_list = 4096;  // of dimensions, phases, notes
  constexpr double longest_us = 1e15;
  auto& plan = file.plan;
  fields.version("ddl_plan", 1);
  fields("collective", plan.collective, planned_collectives());
  fields("bytes", plan.bytes);
  fields("type", plan.type, all_to<DataType::bf16>);
  fields("mode", plan.mode, all_to<Mode::mpi>);
  fields("decomposition", file.decomposition);
  fields("dimensions", plan.dimensions, longest_list);
  fields("order", plan.order, most_ranks, 0, most_ranks - 1);
  fields.optional("further_orders", plan.further_orders, std::vector<std::vector<int>>(), most_further_orders,
                  std::size_t{most_ranks}, 0, most_ranks - 1);
  fields("order_name", plan.order_name);
  fields("chunks", plan.chunks, 1, 64);
  fields("predicted_us", plan.predicted_us, longest_us);
  fields("phase_us", plan.phase_us, longest_list, longest_us);
  fields("bound_us", plan.bound_us, longest_us);
  fields.text("topology_hash", plan.topology_hash, hexadecimal, from_hexadecimal, expected_hexadecimal);
  fields("notes", plan.notes, longest_list);
}

/// Throws `invalid_argument` if fields do not fit together.
Plan plan_of(PlanFile file) {
  Plan& plan = file.plan;
  if (plan.order.empty()) refuse("order: found no ranks, expected at least one");
  plan.decomposition = Decomposition::parse(file.decomposition, static_cast<int>(plan.order.size()));
  require_valid(plan);
  return std::move(plan);
}

}  // namespace

std::string to_json(const Plan& plan) {
  const auto fields = JsonFieldWriter::json(PlanFile{plan, to_string(plan.decomposition)});
  std::string text;
  for (const auto& [key, value] : fields.items()) {
    text += fmt::format("{}  \"{}\": {}", text.empty() ? "{\n" : ",\n", key,
                        value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
  return text + "\n}\n";
}

Plan plan_from_json(std::string_view text, std::string_view source) {
  PlanFile file;
  read_json(text, source, JsonFieldReader::slot(file));
  return check_source(source, [&] { return plan_of(std::move(file)); });
}

}  // namespace ddl::topology
