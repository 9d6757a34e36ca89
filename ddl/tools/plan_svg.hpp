#pragma once

#include <string>

#include "ddl/tools/plan_report.hpp"

namespace ddl::tools {

/// A picture of a plan on its machines: each host with its packages, devices, NICs and switches; links
/// coloured by how busy the simulation finds them (grey if there is none); below, each group of each
/// dimension as a line with a stop at each of its ranks. At most 16 hosts, and 16 devices a host; the rest is
/// counted. Self-contained SVG 1.1; a pure function of its arguments.
std::string plan_svg(const topology::Planner& planner, const PlanReport& report);

}  // namespace ddl::tools
