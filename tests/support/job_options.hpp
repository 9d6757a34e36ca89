#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "ddl/context.hpp"

namespace ddl::test {

/// Options of an in-process job that fails before the test's watchdog ends it.
inline InProcessOptions with_deadline(std::chrono::milliseconds deadline,
                                      std::vector<std::string> hosts = {}) {
  InProcessOptions options;
  options.context.deadline = deadline;
  options.hosts = std::move(hosts);
  return options;
}
inline InProcessOptions on_hosts(std::vector<std::string> hosts = {}) {
  return with_deadline(std::chrono::seconds(60), std::move(hosts));
}

}  // namespace ddl::test
