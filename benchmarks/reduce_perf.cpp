// Measures reduce with the columns and flags of NVIDIA's nccl-tests; see --help.
#include "perf/program.hpp"

int main(int count, char** arguments) {
  return perf::main_of(ddl::topology::Collective::reduce, count, arguments);
}
