#include "collectives/kernels/exact_loops.hpp"
#include "collectives/kernels/kernel_loops.hpp"
#include "collectives/kernels/wire_loops.hpp"

namespace ddl::collectives {

const KernelTable& avx2_kernels() noexcept { return kernels; }
const ExactKernels& avx2_exact_kernels() noexcept { return exact_kernels; }
const wire::Kernels& wire::avx2_kernels() noexcept { return wire::kernels; }

}  // namespace ddl::collectives
