#include "collectives/kernels/kernel_loops.hpp"

namespace ddl::collectives {

const KernelTable& baseline_kernels() noexcept { return kernels; }

}  // namespace ddl::collectives
