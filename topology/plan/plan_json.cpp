// Plans as JSON.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ddl/topology/plan.hpp"
#include "topology/json_fields.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {

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
  try {
    plan.decomposition = Decomposition::parse(file.decomposition, static_cast<int>(plan.order.size()));
  } catch (const Error& error) {
    refuse("decomposition: {}", printable(error.what()));
  }
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
