#include "ddl/gradients/elementwise_loops.hpp"

namespace ddl::elementwise {

const Kernels& avx2_kernels() noexcept { return kernels; }

}  // namespace ddl::elementwise
