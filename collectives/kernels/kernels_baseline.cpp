#include "collectives/kernels/exact_loops.hpp"
#include "collectives/kernels/kernel_loops.hpp"
#include "collectives/kernels/wire_loops.hpp"

namespace ddl::collectives {

const KernelTable& baseline_kernels() noexcept { return kernels; }
const ExactKernels& baseline_exact_kernels() noexcept { return exact_kernels; }
const wire::Kernels& wire::baseline_kernels() noexcept { return wire::kernels; }

}  // namespace ddl::collectives
