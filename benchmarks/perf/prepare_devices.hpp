#pragma once

#include <cstdlib>

#include "ddl/device.hpp"

namespace perf {

/// To be called first in main of programs whose ranks are threads that may share a device: sets variables
/// that CUDA reads when it starts and, unless DDL_DEADLINE is set, a short deadline.
inline void prepare_devices() {
  ddl::set_cuda_environment();
  setenv("DDL_DEADLINE", "15", 0);
}

}  // namespace perf
