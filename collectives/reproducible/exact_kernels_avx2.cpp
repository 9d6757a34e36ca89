#include "collectives/reproducible/exact_loops.hpp"

namespace ddl::collectives {

const ExactKernels& avx2_exact_kernels() noexcept { return exact_kernels; }

}  // namespace ddl::collectives
