#include "collectives/kernels/exact_loops.hpp"
#include "collectives/kernels/kernel_loops.hpp"

namespace ddl::collectives {

const KernelTable& avx2_kernels() noexcept { return kernels; }
const ExactKernels& avx2_exact_kernels() noexcept { return exact_kernels; }

}  // namespace ddl::collectives
