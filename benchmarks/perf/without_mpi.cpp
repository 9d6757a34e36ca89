#include "perf/baseline.hpp"

namespace perf {

std::unique_ptr<Baseline> make_mpi_baseline() { return nullptr; }

}  // namespace perf
