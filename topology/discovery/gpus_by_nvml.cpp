#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "topology/discovery/dynamic_library.hpp"
#include "topology/discovery/nvml.hpp"
#include "topology/discovery/sysfs.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

/// The loaded and initialised library. Functions that some releases lack may be null.
class Nvml {
 private:
  DynamicLibrary library_;
  nvml::Shutdown* const shutdown_ = library_.required<nvml::Shutdown>("nvmlShutdown");
  nvml::ErrorString* const error_string_ = library_.required<nvml::ErrorString>("nvmlErrorString");

 public:
  explicit Nvml(const std::string& path) : library_(path) {
    check(library_.required<nvml::Init>("nvmlInit_v2")(), "nvmlInit_v2");
  }
  Nvml& operator=(Nvml&&) = delete;
  ~Nvml() { shutdown_(); }

  void check(nvml::Return result, std::string_view function) const {
    if (result == 0) return;
    fail_with(ErrorCode::unsupported, "{}: {} failed: {}", library_.path(), function, error_string_(result));
  }

  nvml::GetCount* const count = library_.required<nvml::GetCount>("nvmlDeviceGetCount_v2");
  nvml::GetHandle* const handle = library_.required<nvml::GetHandle>("nvmlDeviceGetHandleByIndex_v2");
  nvml::GetPciInfo* const pci_info = library_.required<nvml::GetPciInfo>("nvmlDeviceGetPciInfo_v3");
  nvml::GetName* const name = library_.required<nvml::GetName>("nvmlDeviceGetName");
  nvml::GetCapability* const capability =
      library_.required<nvml::GetCapability>("nvmlDeviceGetCudaComputeCapability");
  nvml::GetMemory* const memory = library_.required<nvml::GetMemory>("nvmlDeviceGetMemoryInfo");
  nvml::GetUnsigned* const pcie_generation =
      library_.required<nvml::GetUnsigned>("nvmlDeviceGetMaxPcieLinkGeneration");
  nvml::GetUnsigned* const pcie_width = library_.required<nvml::GetUnsigned>("nvmlDeviceGetMaxPcieLinkWidth");
  nvml::GetLinkState* const link_state = library_.required<nvml::GetLinkState>("nvmlDeviceGetNvLinkState");
  nvml::GetRemotePci* const remote_pci =
      library_.required<nvml::GetRemotePci>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  nvml::GetRemoteType* const remote_type =
      library_.required<nvml::GetRemoteType>("nvmlDeviceGetNvLinkRemoteDeviceType");
};

std::string address_of(const nvml::PciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

double pcie_bandwidth_of(const Nvml& nvml, nvml::Device device) {
  constexpr std::array gigatransfers = {2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  unsigned generation = 0;
  unsigned lanes = 0;
  if (nvml.pcie_generation(device, &generation) != 0) return 0;
  if (nvml.pcie_width(device, &lanes) != 0) return 0;
  if (generation < 1 || generation > gigatransfers.size() || lanes < 1 || lanes > 32) return 0;
  return pcie_bandwidth(gigatransfers[generation - 1], static_cast<int>(lanes));
}

GpuDescription describe(const Nvml& nvml, nvml::Device device, const std::filesystem::path& sysfs) {
  GpuDescription gpu;
  nvml::PciInfo pci = {};
  nvml.check(nvml.pci_info(device, &pci), "nvmlDeviceGetPciInfo_v3");
  gpu.pci = pci_place(sysfs, address_of(pci));
  if (gpu.pci.bandwidth == 0) gpu.pci.bandwidth = pcie_bandwidth_of(nvml, device);

  std::array<char, 96> name = {};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
  const auto size = static_cast<unsigned>(name.size()) - 1;
  if (nvml.name(device, name.data(), size) == 0) gpu.model = name.data();
  int major = 0;
  int minor = 0;
  if (nvml.capability(device, &major, &minor) == 0) {
    gpu.compute_capability = compute_capability(major, minor);
  }
  nvml::Memory memory = {};
  if (nvml.memory(device, &memory) == 0) gpu.memory = memory.total;
  return gpu;
}

NvlinkPeer peer_kind(const Nvml& nvml, nvml::Device device, unsigned link, const std::string& address,
                     std::span<const GpuDescription> gpus) {
  const auto address_of_gpu = [](const GpuDescription& gpu) { return gpu.pci.address; };
  if (std::ranges::find(gpus, address, address_of_gpu) != gpus.end()) return NvlinkPeer::gpu;
  unsigned type = nvml::remote_unknown;
  if (nvml.remote_type(device, link, &type) == 0) {
    if (type == nvml::remote_switch) return NvlinkPeer::nvswitch;
    if (type == nvml::remote_ibm_npu) return NvlinkPeer::cpu;
    if (type == nvml::remote_gpu) return NvlinkPeer::gpu;
  }
  // Releases before 11.7 do not report the type, but an NVSwitch is a PCI bridge of class "other".
  return NvlinkPeer::unknown;
}

std::vector<NvlinkDescription> nvlinks_of(const Nvml& nvml, nvml::Device device,
                                          std::span<const GpuDescription> gpus) {
  std::vector<NvlinkDescription> peers;
  for (unsigned link = 0; link < nvml::most_links; ++link) {
    unsigned is_active = 0;
    if (nvml.link_state(device, link, &is_active) != 0 || is_active == 0) continue;
    nvml::PciInfo pci = {};
    const bool has_address = nvml.remote_pci(device, link, &pci) == 0;
    NvlinkDescription found;
    const std::string address = has_address ? address_of(pci) : "";
    found.peer = peer_kind(nvml, device, link, address, gpus);
    found.count = 1;
    if (found.peer == NvlinkPeer::gpu) found.address = address;
    const auto known = std::ranges::find_if(peers, [&](const NvlinkDescription& other) {
      return other.peer == found.peer && other.address == found.address;
    });
    if (known == peers.end()) {
      peers.push_back(std::move(found));
    } else {
      ++known->count;
    }
  }
  return peers;
}

}  // namespace

std::vector<GpuDescription> gpus_by_nvml(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes) {
  const Nvml nvml(library);
  unsigned count = 0;
  nvml.check(nvml.count(&count), "nvmlDeviceGetCount_v2");
  std::vector<GpuDescription> gpus;
  std::vector<nvml::Device> devices;
  for (unsigned index = 0; index < count; ++index) {
    try {
      nvml::Device device = nullptr;
      nvml.check(nvml.handle(index, &device), "nvmlDeviceGetHandleByIndex_v2");
      gpus.push_back(describe(nvml, device, sysfs));
      devices.push_back(device);
    } catch (const Error& error) {
      notes.push_back(fmt::format("GPU {} left out: {}", index, error.what()));
    }
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].nvlinks = nvlinks_of(nvml, devices[i], gpus);
  return gpus;
}

}  // namespace ddl::topology
