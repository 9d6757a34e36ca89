#pragma once

#include <unistd.h>

namespace ddl::test {

/// Whether a driver of NVIDIA's is loaded. Without one there is no device, and a test that needs one may
/// skip; with one, a device that cannot be used must fail the test.
inline bool has_nvidia_driver() {
  return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

}  // namespace ddl::test
