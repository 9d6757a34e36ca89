// A stand-in for libnvidia-ml.so.1 with three GPUs. The environment variable DDL_FAKE_NVML selects the
// scenario:
//   mesh       NVLinks 0-1: 2, 0-2: 1, 1-2: 3; one of GPU 0 to the CPU; one of GPU 2 that is down
//   nvswitch   18 NVLinks of each GPU to four NVSwitches
//   no_driver  nvmlInit fails
//   lost       GPU 1 is lost
// Built without a function, it stands in for an old release.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "topology/discovery/nvml.hpp"

using namespace ddl::topology::nvml;

namespace {

constexpr unsigned gpus = 3;
constexpr Return not_supported = 3, driver_not_loaded = 9, gpu_is_lost = 15;
bool is_initialised = false;

bool plays(std::string_view scenario) {
  const char* const value = std::getenv("DDL_FAKE_NVML");
  return value != nullptr && scenario == value;
}

unsigned index_of(Device device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

PciInfo gpu_pci(unsigned index) {
  PciInfo pci = {};
  pci.domain = index == 2 ? 1 : 0;  // the third GPU is in another PCI domain
  pci.bus = 4 + index;
  std::snprintf(pci.bus_id, sizeof pci.bus_id, "%08X:%02X:00.0", pci.domain, pci.bus);
  return pci;
}

struct End {
  unsigned type;
  PciInfo pci;
  bool is_up = true;
};

End to_gpu(unsigned index) { return {remote_gpu, gpu_pci(index)}; }
End to_bus(unsigned type, unsigned bus) {
  PciInfo pci = {};
  pci.bus = bus;
  return {type, pci};
}

/// Finds the device at the other end of a link, if there is one.
[[maybe_unused]] bool find_end(unsigned gpu, unsigned link, End* end) {
  if (plays("nvswitch")) {
    *end = to_bus(remote_switch, 0x80 + link % 4);
    return link < 18;
  }
  const End down = {remote_gpu, gpu_pci(0), false};
  const End ends[gpus][6] = {
      {to_gpu(1), to_gpu(2), to_gpu(1), to_bus(remote_ibm_npu, 0xf0), down, down},
      {to_gpu(0), to_gpu(0), to_gpu(2), to_gpu(2), to_gpu(2), down},
      {to_gpu(1), to_gpu(1), to_gpu(1), to_gpu(0), down, down},
  };
  if (link >= 6) return false;
  *end = ends[gpu][link];
  return true;
}

}  // namespace

extern "C" {

Return nvmlInit_v2() {
  if (plays("no_driver")) return driver_not_loaded;
  is_initialised = true;
  return 0;
}
Return nvmlShutdown() {
  // A second call, or one without nvmlInit, must not happen.
  if (!is_initialised) std::abort();
  is_initialised = false;
  return 0;
}
const char* nvmlErrorString(Return code) {
  return code == driver_not_loaded ? "Driver Not Loaded"
         : code == gpu_is_lost     ? "GPU is lost"
                                   : "Not Supported";
}
#ifndef FAKE_NVML_WITHOUT_COUNT
Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = gpus;
  return 0;
}
#endif
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (plays("lost") && index == 1) return gpu_is_lost;
  *device = reinterpret_cast<Device>(static_cast<std::uintptr_t>(index) + 1);
  return 0;
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  *pci = gpu_pci(index_of(device));
  return 0;
}
Return nvmlDeviceGetName(Device, char* name, unsigned length) {
  std::snprintf(name, length, "Fake V100");
  return 0;
}
Return nvmlDeviceGetCudaComputeCapability(Device, int* major, int* minor) {
  *major = 7;
  *minor = 0;
  return 0;
}
Return nvmlDeviceGetMemoryInfo(Device, Memory* memory) {
  *memory = {std::uint64_t{16} << 30, 1, 2};
  return 0;
}
Return nvmlDeviceGetMaxPcieLinkGeneration(Device, unsigned* generation) {
  *generation = 3;
  return 0;
}
Return nvmlDeviceGetMaxPcieLinkWidth(Device, unsigned* width) {
  *width = 16;
  return 0;
}
Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* is_active) {
  End end = {};
  if (!find_end(index_of(device), link, &end)) return not_supported;
  *is_active = end.is_up ? 1 : 0;
  return 0;
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* pci) {
  End end = {};
  if (!find_end(index_of(device), link, &end)) return not_supported;
  *pci = end.pci;
  return 0;
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned* type) {
  End end = {};
  if (!find_end(index_of(device), link, &end)) return not_supported;
  *type = end.type;
  return 0;
}
}
