#pragma once

#include "ddl/topology/schedule.hpp"

namespace perf {

/// A benchmark program: reads the command line, makes the ranks or finds them, measures one collective and
/// prints the table. Returns its exit status: 0, 1 for a wrong result or what fails, 2 for a wrong command
/// line.
int main_of(ddl::topology::Collective collective, int count, char** arguments);

}  // namespace perf
