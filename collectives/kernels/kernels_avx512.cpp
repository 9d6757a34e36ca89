#include "collectives/kernels/kernel_loops.hpp"

namespace ddl::collectives {

const KernelTable& avx512_kernels() noexcept { return kernels; }

}  // namespace ddl::collectives
