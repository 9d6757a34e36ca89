#pragma once

#include "ddl/topology/schedule.hpp"

namespace perf {

/// Runs a benchmark program: parses the command line, joins the job or makes ranks as threads, measures one
/// collective and prints the table. Returns the exit status: 0, 1 for a wrong result or a failure, 2 for a
/// wrong command line.
int main_of(ddl::topology::Collective collective, int count, char** arguments);

}  // namespace perf
