#include "collectives/kernels/kernel_loops.hpp"

namespace ddl::collectives {

const KernelTable& avx2_kernels() noexcept { return kernels; }

}  // namespace ddl::collectives
