#pragma once

#include <cstdlib>

#include "ddl/device.hpp"

namespace perf {

/// First in main of programs whose ranks are threads that may share a device: what CUDA reads when it starts,
/// and a deadline, unless DDL_DEADLINE says another one, that ends a hang soon.
inline void prepare_devices() {
  ddl::set_cuda_environment();
  setenv("DDL_DEADLINE", "15", 0);
}

}  // namespace perf
