#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "topology/discovery/cuda_driver.hpp"
#include "topology/discovery/dynamic_library.hpp"
#include "topology/discovery/sysfs.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

namespace cuda = cuda_driver;

/// The loaded and initialised driver. Functions that some releases lack may be null.
class Driver {
 private:
  // cuInit cannot be undone, so its code must stay loaded.
  DynamicLibrary library_;
  cuda::GetErrorText* const error_string_ = library_.required<cuda::GetErrorText>("cuGetErrorString");

 public:
  explicit Driver(const std::string& path) : library_(path, RTLD_NODELETE) {
    check(library_.required<cuda::Init>("cuInit")(0), "cuInit");
  }

  cuda::GetCount* const count = library_.required<cuda::GetCount>("cuDeviceGetCount");
  cuda::Get* const get = library_.required<cuda::Get>("cuDeviceGet");
  cuda::GetText* const pci_address = library_.required<cuda::GetText>("cuDeviceGetPCIBusId");
  cuda::GetText* const name = library_.required<cuda::GetText>("cuDeviceGetName");
  cuda::GetAttribute* const attribute = library_.required<cuda::GetAttribute>("cuDeviceGetAttribute");
  cuda::GetMemory* const memory = library_.required<cuda::GetMemory>("cuDeviceTotalMem_v2");
  cuda::GetP2p* const p2p = library_.required<cuda::GetP2p>("cuDeviceGetP2PAttribute");

  void check(cuda::Result code, std::string_view function) const {
    if (code == 0) return;
    const char* text = nullptr;
    const bool is_explained = error_string_(code, &text) == 0 && text != nullptr;
    fail_with(ErrorCode::unsupported, "{}: {} failed: {} (error {})", library_.path(), function,
              is_explained ? text : "an error that the driver does not explain", code);
  }
};

std::string visible_devices() {
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "not set" : fmt::format("'{}'", std::string_view(value).substr(0, 200));
}

/// In sysfs's spelling; CUDA's hexadecimal digits may be upper case.
std::string address_of(const Driver& driver, cuda::Device device) {
  std::array<char, 32> text = {};
  driver.check(driver.pci_address(text.data(), static_cast<int>(text.size()) - 1, device),
               "cuDeviceGetPCIBusId");
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  unsigned function = 0;
  if (std::sscanf(text.data(), "%8x:%2x:%2x.%1x", &domain, &bus, &slot, &function) != 4) {
    fail_with(ErrorCode::unsupported,
              "found the PCI address '{}', expected one like "
              "0000:04:00.0",
              text.data());
  }
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, slot, function);
}

GpuDescription describe(const Driver& driver, cuda::Device device, const std::filesystem::path& sysfs) {
  GpuDescription gpu;
  gpu.pci = pci_place(sysfs, address_of(driver, device));
  std::array<char, 256> name = {};
  if (driver.name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) gpu.model = name.data();
  int major = 0;
  int minor = 0;
  driver.attribute(&major, cuda::compute_capability_major, device);
  driver.attribute(&minor, cuda::compute_capability_minor, device);
  gpu.compute_capability = compute_capability(major, minor);
  driver.memory(&gpu.memory, device);
  return gpu;
}

struct FoundGpu {
  cuda::Device device;
  GpuDescription description;
};

std::vector<FoundGpu> find_gpus(const Driver& driver, int count, const std::filesystem::path& sysfs,
                                std::vector<std::string>& notes) {
  std::vector<FoundGpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    try {
      cuda::Device device = 0;
      driver.check(driver.get(&device, ordinal), "cuDeviceGet");
      GpuDescription gpu = describe(driver, device, sysfs);
      const bool is_known = std::ranges::any_of(
          gpus, [&](const FoundGpu& other) { return other.description.pci.address == gpu.pci.address; });
      if (is_known) {  // instances of one partitioned GPU
        fail_with(ErrorCode::unsupported, "{} is the address of another one as well", gpu.pci.address);
      }
      gpus.push_back({device, std::move(gpu)});
    } catch (const Error& error) {
      notes.push_back(fmt::format("CUDA's GPU {} left out: {}", ordinal, error.what()));
    }
  }
  // CUDA's own order puts the fastest GPU first.
  std::ranges::sort(gpus, {}, [](const FoundGpu& gpu) { return gpu.description.pci.address; });
  return gpus;
}

/// CUDA does not tell of NVLinks: GPUs with native atomics between them count as joined by one. Pairs that
/// the driver refuses to tell of count as joined by PCIe.
void guess_nvlinks(const Driver& driver, std::span<FoundGpu> gpus, std::vector<std::string>& notes) {
  bool is_joined = false;
  for (FoundGpu& gpu : gpus) {
    for (const FoundGpu& peer : gpus) {
      if (&gpu == &peer) continue;
      int has_access = 0;
      int has_atomics = 0;
      driver.p2p(&has_access, cuda::access_supported, gpu.device, peer.device);
      driver.p2p(&has_atomics, cuda::native_atomic_supported, gpu.device, peer.device);
      if (has_access == 0 || has_atomics == 0) continue;
      gpu.description.nvlinks.push_back({NvlinkPeer::gpu, peer.description.pci.address, 1});
      is_joined = true;
    }
  }
  if (!is_joined) return;
  notes.emplace_back(
      "numbers of NVLinks unknown: GPUs with native atomics between them are taken as joined by one link, "
      "others by PCIe");
}

}  // namespace

std::vector<GpuDescription> gpus_by_cuda(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes) {
  std::optional<Driver> driver;
  int count = 0;
  try {
    driver.emplace(library);
    driver->check(driver->count(&count), "cuDeviceGetCount");
    if (count < 1) fail_with(ErrorCode::unsupported, "{}: cuDeviceGetCount found no device", library);
  } catch (const Error& error) {
    if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) throw;
    fail_with(ErrorCode::unsupported, "{} (CUDA_VISIBLE_DEVICES is {})", error.what(), visible_devices());
  }
  notes.push_back(
      fmt::format("CUDA_VISIBLE_DEVICES may hide GPUs of this host from CUDA; it is {}", visible_devices()));
  std::vector<FoundGpu> found = find_gpus(*driver, count, sysfs, notes);
  guess_nvlinks(*driver, found, notes);
  std::vector<GpuDescription> gpus;
  for (FoundGpu& gpu : found) gpus.push_back(std::move(gpu.description));
  return gpus;
}

}  // namespace ddl::topology
