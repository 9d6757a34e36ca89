// A stand-in for libcuda.so.1 with three GPUs, whose numbers do not follow their PCI addresses. The
// environment variable DDL_FAKE_CUDA selects the scenario:
//   mesh         NVLink between 0001:c1 and 0000:04 and between 0000:04 and 0000:05, of different
//                performance rank; the third pair has no peer access
//   pcie         peer access without native atomics everywhere
//   failing_p2p  as mesh, but queries about 0001:c1 and 0000:04 fail
//   no_device    cuInit fails
//   stub         every function fails as in the library that comes with the toolkit
//   zero         there is no device, although cuInit succeeds
//   lost         the GPU that CUDA numbers 1 is lost
//   partitioned  GPUs 0 and 1 have the same PCI address
//   no_address   GPU 2 has an invalid address
// Built without a function, it stands in for an old release.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "topology/discovery/cuda_driver.hpp"

using namespace ddl::topology::cuda_driver;

namespace {

constexpr int gpus = 3;
constexpr Device first_handle = 40;  // handles differ from ordinals
bool is_initialised = false;

bool plays(std::string_view scenario) {
  const char* const value = std::getenv("DDL_FAKE_CUDA");
  return value != nullptr && scenario == value;
}

/// The result of a call about a device before it checks its arguments.
Result state() { return is_initialised ? 0 : static_cast<Result>(not_initialized); }

bool is_device(Device device) { return device >= first_handle && device < first_handle + gpus; }

}  // namespace

extern "C" {

/// For tests: the number of calls of cuInit.
int fake_cuda_inits = 0;

Result cuInit(unsigned flags) {
  ++fake_cuda_inits;
  is_initialised = false;  // tests play several scenarios in one process
  if (flags != 0) return invalid_value;
  if (plays("no_device")) return no_device;
  if (plays("stub")) return stub_library;
  is_initialised = true;
  return 0;
}
#ifndef FAKE_CUDA_WITHOUT_COUNT
Result cuDeviceGetCount(int* count) {
  *count = plays("zero") ? 0 : gpus;
  return state();
}
#endif
Result cuDeviceGet(Device* device, int ordinal) {
  if (plays("lost") && ordinal == 1) return invalid_device;
  *device = first_handle + ordinal;
  return state();
}
Result cuDeviceGetPCIBusId(char* text, int length, Device device) {
  if (!is_device(device)) return invalid_device;
  const char* const addresses[gpus] = {"0001:C1:00.0", "0000:05:00.0", "0000:04:00.0"};
  int index = device - first_handle;
  if (plays("partitioned") && index == 1) index = 0;
  const bool is_bad = plays("no_address") && index == 2;
  std::snprintf(text, static_cast<std::size_t>(length), "%s", is_bad ? "MIG-7" : addresses[index]);
  return state();
}
Result cuGetErrorString(Result code, const char** text) {
  *text = code == no_device        ? "no CUDA-capable device is detected"
          : code == invalid_device ? "invalid device ordinal"
                                   : nullptr;
  if (plays("stub")) return stub_library;
  return *text == nullptr ? static_cast<Result>(invalid_value) : 0;
}
Result cuDeviceGetName(char* text, int length, Device device) {
  if (!is_device(device)) return invalid_device;
  std::snprintf(text, static_cast<std::size_t>(length), "Fake A100 %d", device - first_handle);
  return state();
}
Result cuDeviceGetAttribute(int* value, Attribute attribute, Device device) {
  if (!is_device(device)) return invalid_device;
  if (attribute != compute_capability_major && attribute != compute_capability_minor) return invalid_value;
  *value = attribute == compute_capability_major ? 8 : 6;
  return state();
}
Result cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
  if (!is_device(device)) return invalid_device;
  *bytes = std::size_t{40} << 30;
  return state();
}
Result cuDeviceGetP2PAttribute(int* value, P2pAttribute attribute, Device from, Device to) {
  if (!is_device(from) || !is_device(to) || from == to) return invalid_device;
  const int pair = (from - first_handle) + (to - first_handle);  // 1: c1 and 05, 2: c1 and 04, 3: 05 and 04
  if (plays("failing_p2p") && pair == 2) return invalid_device;
  switch (attribute) {
    case access_supported:
      *value = plays("pcie") || pair != 1 ? 1 : 0;
      return state();
    case native_atomic_supported:
      *value = plays("pcie") ? 0 : 1;
      return state();
  }
  return invalid_value;
}
}
