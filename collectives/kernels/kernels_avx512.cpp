#include "collectives/kernels/exact_loops.hpp"
#include "collectives/kernels/kernel_loops.hpp"

namespace ddl::collectives {

const KernelTable& avx512_kernels() noexcept { return kernels; }
const ExactKernels& avx512_exact_kernels() noexcept { return exact_kernels; }

}  // namespace ddl::collectives
