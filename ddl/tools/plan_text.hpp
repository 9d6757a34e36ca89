#pragma once

#include <string>

#include "ddl/tools/plan_report.hpp"

namespace ddl::tools {

/// What the plan is, a table of its phases, predicted time and bound.
std::string plan_text(const topology::Planner& planner, const PlanReport& report);
/// Why it is this plan: what else there is, where the time goes, and what a person can do.
std::string explanation_text(const topology::Planner& planner, const PlanReport& report);
/// "verified: ..." or what is wrong.
std::string verdict_text(const topology::Verdict& verdict);
/// Total, phases, busiest links, critical path.
std::string simulation_text(const topology::Planner& planner, const PlanReport& report);
std::string candidates_text(const PlanReport& report);

/// One JSON object; its schema is in topology/README.md.
std::string report_json(const topology::Planner& planner, const PlanReport& report, bool explain);

}  // namespace ddl::tools
