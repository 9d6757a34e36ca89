#pragma once

/// The part of NVIDIA's management library that discovery uses, declared from its public reference
/// (docs.nvidia.com/deploy/nvml-api): builds need no NVML header, and no library must be installed.
namespace ddl::topology::nvml {

using Return = int;  // 0: success
using Device = struct DeviceHandle*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct Memory {
  unsigned long long total;  // bytes
  unsigned long long free;
  unsigned long long used;
};

/// nvmlIntNvLinkDeviceType_t.
enum RemoteType : unsigned { remote_gpu = 0, remote_ibm_npu = 1, remote_switch = 2, remote_unknown = 255 };

/// Above NVML_NVLINK_MAX_LINKS of all known releases (18). A query for a link that the GPU lacks fails
/// without further effect.
constexpr unsigned most_links = 64;

using Init = Return();                                         // nvmlInit_v2
using Shutdown = Return();                                     // nvmlShutdown
using ErrorString = const char*(Return);                       // nvmlErrorString
using GetCount = Return(unsigned* count);                      // nvmlDeviceGetCount_v2
using GetHandle = Return(unsigned index, Device* device);      // nvmlDeviceGetHandleByIndex_v2
using GetPciInfo = Return(Device, PciInfo*);                   // nvmlDeviceGetPciInfo_v3
using GetName = Return(Device, char* name, unsigned length);   // nvmlDeviceGetName
using GetCapability = Return(Device, int* major, int* minor);  // nvmlDeviceGetCudaComputeCapability
using GetMemory = Return(Device, Memory*);                     // nvmlDeviceGetMemoryInfo
using GetUnsigned = Return(Device, unsigned*);                 // nvmlDeviceGetMaxPcieLinkGeneration, ...Width
using GetLinkState = Return(Device, unsigned link, unsigned* is_active);  // nvmlDeviceGetNvLinkState
using GetRemotePci = Return(Device, unsigned link, PciInfo*);         // nvmlDeviceGetNvLinkRemotePciInfo_v2
using GetRemoteType = Return(Device, unsigned link, unsigned* type);  // nvmlDeviceGetNvLinkRemoteDeviceType

}  // namespace ddl::topology::nvml
