#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ddl/tools/plan_report.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using Json = nlohmann::ordered_json;
using topology::Plan;
using topology::Planner;

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

Json dimensions_json(const Planner& planner, const PlanReport& report) {
  const Plan& plan = report.plan;
  Json list = Json::array();
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    const topology::PlanDimension& dimension = plan.dimensions[as_index(d)];
    list.push_back({{"size", plan.decomposition.size(d)},
                    {"algorithm", to_string(dimension.algorithm)},
                    {"carrier", to_string(dimension.carrier)},
                    {"wires", wires_of(planner.topology(), planner.placement(), plan, d, report.root)}});
    if (dimension.wire) list.back()["wire"] = to_string(*dimension.wire);
  }
  return list;
}

Json phases_json(const PlanReport& report) {
  const Plan& plan = report.plan;
  const auto phases = phases_of(plan);
  Json list = Json::array();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const topology::PhaseFigures figures = figures_of(plan, phases[i]);
    Json phase = {{"phase", to_string(phases[i].kind)},
                  {"dimension", phases[i].dimension},
                  {"algorithm", to_string(plan.dimensions[as_index(phases[i].dimension)].algorithm)},
                  {"members", figures.members},
                  {"rounds", figures.rounds},
                  {"bytes", figures.bytes_per_rank},
                  {"chunk_us", i < plan.phase_us.size() ? Json(plan.phase_us[i]) : Json(nullptr)},
                  {"simulated_start_us", nullptr},
                  {"simulated_end_us", nullptr},
                  {"simulated_bytes", nullptr}};
    if (report.simulation) {
      for (const topology::SimulatedPhase& simulated : report.simulation->phases) {
        if (as_index(simulated.phase) != i) continue;
        phase["simulated_start_us"] = simulated.start_us;
        phase["simulated_end_us"] = simulated.end_us;
        phase["simulated_bytes"] = simulated.bytes;
      }
    }
    list.push_back(std::move(phase));
  }
  return list;
}

Json rated_json(const std::vector<RatedPlan>& plans) {
  Json list = Json::array();
  for (const RatedPlan& rated : plans) {
    Json algorithms = Json::array();
    for (const topology::PlanDimension& dimension : rated.plan.dimensions) {
      algorithms.push_back(to_string(dimension.algorithm));
    }
    list.push_back({{"name", rated.name.empty() ? short_name(rated.plan) : rated.name},
                    {"mode", std::string(1, letter_of(rated.plan.mode))},
                    {"decomposition", to_string(rated.plan.decomposition)},
                    {"order_name", rated.plan.order_name},
                    {"algorithms", std::move(algorithms)},
                    {"chunks", rated.plan.chunks},
                    {"predicted_us", rated.plan.predicted_us},
                    {"simulated_us", number_or_null(rated.simulated_us)},
                    {"hash", hash_text(hash(rated.plan))}});
  }
  return list;
}

Json links_json(const Planner& planner, const topology::Simulation& simulation) {
  Json list = Json::array();
  for (const LinkUse& use : link_uses(planner.topology(), simulation)) {
    list.push_back({{"link", use.name},
                    {"kind", to_string(use.link.kind)},
                    {"bandwidth", use.link.bandwidth},
                    {"bytes", use.bytes},
                    {"utilisation", use.utilisation}});
  }
  return list;
}

}  // namespace

std::string report_json(const Planner& planner, const PlanReport& report, bool explain) {
  const Plan& plan = report.plan;
  std::optional<double> simulated;
  if (report.simulation) simulated = report.simulation->total_us;
  Json json = {{"ddl_plan_report", 1},
               {"topology", report.topology_name},
               {"topology_hash", hash_text(plan.topology_hash)},
               {"ranks", plan.decomposition.ranks()},
               {"placement", report.placement_name},
               {"collective", to_string(plan.collective)},
               {"bytes", plan.bytes},
               {"type", to_string(plan.type)},
               {"mode", std::string(1, letter_of(plan.mode))},
               {"decomposition", to_string(plan.decomposition)},
               {"order_name", plan.order_name},
               {"dimensions", dimensions_json(planner, report)},
               {"phases", phases_json(report)},
               {"chunks", plan.chunks},
               {"transfers", static_cast<std::uint64_t>(report.transfers)},
               {"predicted_us", plan.predicted_us},
               {"simulated_us", number_or_null(simulated)},
               {"bound_us", plan.bound_us},
               {"verified", report.verdict ? Json(report.verdict->ok) : Json(nullptr)},
               {"hash", hash_text(hash(plan))},
               {"notes", plan.notes}};
  if (report.verdict && !report.verdict->ok) json["problem"] = report.verdict->problem;
  if (explain) {
    json["order"] = plan.order;
    if (!plan.further_orders.empty()) json["further_orders"] = plan.further_orders;
    json["alternatives"] = rated_json(report.alternatives);
  }
  if (report.simulation) json["links"] = links_json(planner, *report.simulation);
  if (report.candidates_in_all > 0) {
    json["candidates_in_all"] = report.candidates_in_all;
    json["candidates"] = rated_json(report.candidates);
  }
  return json.dump(2) + "\n";
}

}  // namespace ddl::tools
