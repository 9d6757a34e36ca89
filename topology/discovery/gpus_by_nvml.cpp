#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "ddl/error.hpp"
#include "topology/discovery/dynamic_library.hpp"
#include "topology/discovery/nvml.hpp"
#include "topology/discovery/sources.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

/// The loaded and initialised library. Functions that not every release has may be null.
class Nvml {
 public:
  explicit Nvml(const std::string& path) : library_(path) {
    const auto init = library_.required<nvml::Init>("nvmlInit_v2");
    shutdown_ = library_.required<nvml::Shutdown>("nvmlShutdown");
    error_string_ = library_.optional<nvml::ErrorString>("nvmlErrorString");
    count = library_.required<nvml::GetCount>("nvmlDeviceGetCount_v2");
    handle = library_.required<nvml::GetHandle>("nvmlDeviceGetHandleByIndex_v2");
    pci_info = library_.required<nvml::GetPciInfo>("nvmlDeviceGetPciInfo_v3");
    name = library_.optional<nvml::GetName>("nvmlDeviceGetName");
    capability = library_.optional<nvml::GetCapability>("nvmlDeviceGetCudaComputeCapability");
    memory = library_.optional<nvml::GetMemory>("nvmlDeviceGetMemoryInfo");
    pcie_generation = library_.optional<nvml::GetUnsigned>("nvmlDeviceGetMaxPcieLinkGeneration");
    pcie_width = library_.optional<nvml::GetUnsigned>("nvmlDeviceGetMaxPcieLinkWidth");
    link_state = library_.optional<nvml::GetLinkState>("nvmlDeviceGetNvLinkState");
    remote_pci = library_.optional<nvml::GetRemotePci>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    remote_type = library_.optional<nvml::GetRemoteType>("nvmlDeviceGetNvLinkRemoteDeviceType");
    check(init(), "nvmlInit_v2");
    initialised_ = true;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (initialised_) shutdown_();
  }

  void check(nvml::Return result, std::string_view function) const {
    if (result == 0) return;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: {} failed: {}", library_.path(), function,
                    error_string_ != nullptr ? error_string_(result) : fmt::format("error {}", result)));
  }

  nvml::GetCount* count = nullptr;
  nvml::GetHandle* handle = nullptr;
  nvml::GetPciInfo* pci_info = nullptr;
  nvml::GetName* name = nullptr;
  nvml::GetCapability* capability = nullptr;
  nvml::GetMemory* memory = nullptr;
  nvml::GetUnsigned* pcie_generation = nullptr;
  nvml::GetUnsigned* pcie_width = nullptr;
  nvml::GetLinkState* link_state = nullptr;
  nvml::GetRemotePci* remote_pci = nullptr;
  nvml::GetRemoteType* remote_type = nullptr;

 private:
  DynamicLibrary library_;
  nvml::Shutdown* shutdown_ = nullptr;
  nvml::ErrorString* error_string_ = nullptr;
  bool initialised_ = false;
};

std::string address_of(const nvml::PciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

double pcie_bandwidth_of(const Nvml& nvml, nvml::Device device) {
  constexpr std::array gigatransfers = {2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  unsigned generation = 0;
  unsigned lanes = 0;
  if (nvml.pcie_generation == nullptr || nvml.pcie_generation(device, &generation) != 0) return 0;
  if (nvml.pcie_width == nullptr || nvml.pcie_width(device, &lanes) != 0) return 0;
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
  if (nvml.name != nullptr && nvml.name(device, name.data(), name.size() - 1) == 0) gpu.model = name.data();
  int major = 0;
  int minor = 0;
  if (nvml.capability != nullptr && nvml.capability(device, &major, &minor) == 0 && major > 0 &&
      major < 100 && minor >= 0 && minor < 10) {
    gpu.compute_capability = 10 * major + minor;
  }
  nvml::Memory memory = {};
  if (nvml.memory != nullptr && nvml.memory(device, &memory) == 0) gpu.memory = memory.total;
  return gpu;
}

bool is_one_of(std::span<const GpuDescription> gpus, const std::string& address) {
  return std::ranges::any_of(gpus, [&](const GpuDescription& gpu) { return gpu.pci.address == address; });
}

NvlinkPeer peer_kind(const Nvml& nvml, nvml::Device device, unsigned link, const std::string& address,
                     std::span<const GpuDescription> gpus, const std::filesystem::path& sysfs) {
  if (is_one_of(gpus, address)) return NvlinkPeer::gpu;
  unsigned type = nvml::remote_unknown;
  if (nvml.remote_type != nullptr && nvml.remote_type(device, link, &type) == 0) {
    if (type == nvml::remote_switch) return NvlinkPeer::nvswitch;
    if (type == nvml::remote_ibm_npu) return NvlinkPeer::cpu;
    if (type == nvml::remote_gpu) return NvlinkPeer::gpu;
  }
  // Releases before 11.7 do not tell the type, but PCI does: an NVSwitch is a bridge of class "other".
  if (const auto code = pci_class(sysfs, address); code && *code >> 8 == 0x0680) return NvlinkPeer::nvswitch;
  return NvlinkPeer::unknown;
}

std::vector<NvlinkDescription> nvlinks_of(const Nvml& nvml, nvml::Device device,
                                          std::span<const GpuDescription> gpus,
                                          const std::filesystem::path& sysfs) {
  std::vector<NvlinkDescription> peers;
  for (unsigned link = 0; link < nvml::most_links; ++link) {
    unsigned is_active = 0;
    if (nvml.link_state(device, link, &is_active) != 0 || is_active == 0) continue;
    nvml::PciInfo pci = {};
    const bool has_address = nvml.remote_pci != nullptr && nvml.remote_pci(device, link, &pci) == 0;
    NvlinkDescription found;
    const std::string address = has_address ? address_of(pci) : "";
    found.peer = peer_kind(nvml, device, link, address, gpus, sysfs);
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
  if (nvml.link_state == nullptr) {
    if (!gpus.empty()) {
      notes.push_back(fmt::format("NVLinks unknown: {} has no function nvmlDeviceGetNvLinkState", library));
    }
    return gpus;
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].nvlinks = nvlinks_of(nvml, devices[i], gpus, sysfs);
  return gpus;
}

}  // namespace ddl::topology
