#pragma once

#include <string>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The machine's packages, or those of a synthetic description. Throws `invalid_argument` if hwloc refuses
/// that, and `io` if it cannot read the machine.
std::vector<PackageDescription> packages_by_hwloc(const std::string& synthetic);

}  // namespace ddl::topology
