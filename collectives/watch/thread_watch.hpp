#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/watch/watch.hpp"

namespace ddl::collectives {

/// The watches of ranks that are threads of this process, by rank. `hosts`: the name of each rank's host.
std::vector<std::shared_ptr<Watch>> thread_watches(const std::vector<std::string>& hosts);

}  // namespace ddl::collectives
