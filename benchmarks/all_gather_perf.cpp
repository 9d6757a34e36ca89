// Measures all_gather with the columns and flags of NVIDIA's nccl-tests; see --help.
#include "perf/program.hpp"

int main(int count, char** arguments) {
  return perf::main_of(ddl::topology::Collective::all_gather, count, arguments);
}
