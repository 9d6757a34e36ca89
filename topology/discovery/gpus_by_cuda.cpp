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
#include "topology/discovery/sources.hpp"
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
  cuda::GetErrorText* const error_name_ = library_.optional<cuda::GetErrorText>("cuGetErrorName");
  cuda::GetErrorText* const error_string_ = library_.optional<cuda::GetErrorText>("cuGetErrorString");

 public:
  explicit Driver(const std::string& path) : library_(path, RTLD_NODELETE) {
    check(library_.required<cuda::Init>("cuInit")(0), "cuInit");
  }

  cuda::GetCount* const count = library_.required<cuda::GetCount>("cuDeviceGetCount");
  cuda::Get* const get = library_.required<cuda::Get>("cuDeviceGet");
  cuda::GetText* const pci_address = library_.required<cuda::GetText>("cuDeviceGetPCIBusId");
  cuda::GetText* const name = library_.optional<cuda::GetText>("cuDeviceGetName");
  cuda::GetAttribute* const attribute = library_.optional<cuda::GetAttribute>("cuDeviceGetAttribute");
  cuda::GetMemory* const memory = library_.optional<cuda::GetMemory>("cuDeviceTotalMem_v2");
  cuda::GetP2p* const p2p = library_.optional<cuda::GetP2p>("cuDeviceGetP2PAttribute");

  [[nodiscard]] std::string failure(cuda::Result code, std::string_view function) const {
    const char* text = nullptr;
    const char* code_name = nullptr;
    const bool has_text = succeeds(error_string_, code, &text) && text != nullptr;
    const bool has_name = succeeds(error_name_, code, &code_name) && code_name != nullptr;
    // The toolkit's library for linking has no texts.
    const char* const otherwise = code == cuda::stub_library
                                      ? "the library is a stub for linking, not a driver"
                                      : "an error that the driver does not explain";
    return fmt::format("{}: {} failed: {} ({}{})", library_.path(), function, has_text ? text : otherwise,
                       has_name ? fmt::format("{}, ", code_name) : "error ", code);
  }
  void check(cuda::Result code, std::string_view function) const {
    if (code != 0) throw Error(ErrorCode::unsupported, failure(code, function));
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
  if (succeeds(driver.name, name.data(), static_cast<int>(name.size()) - 1, device)) gpu.model = name.data();
  int major = 0;
  int minor = 0;
  if (succeeds(driver.attribute, &major, cuda::compute_capability_major, device) &&
      succeeds(driver.attribute, &minor, cuda::compute_capability_minor, device)) {
    gpu.compute_capability = compute_capability(major, minor);
  }
  std::size_t memory = 0;
  if (succeeds(driver.memory, &memory, device)) gpu.memory = memory;
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

/// Adds one NVLink between each two GPUs that support native atomics, which PCIe does not offer.
void guess_nvlinks(const Driver& driver, const std::string& library, std::span<FoundGpu> gpus,
                   std::vector<std::string>& notes) {
  if (gpus.size() < 2) return;
  if (driver.p2p == nullptr) {
    notes.push_back(
        fmt::format("NVLinks unknown: {} has no function cuDeviceGetP2PAttribute; all GPUs are taken as "
                    "joined by PCIe",
                    library));
    return;
  }
  std::string first_failure;
  int failures = 0;
  std::vector<int> ranks;  // performance ranks of the joined pairs
  for (FoundGpu& gpu : gpus) {
    for (const FoundGpu& peer : gpus) {
      if (&gpu == &peer) continue;
      const auto ask = [&](cuda::P2pAttribute attribute, int& value) {
        return driver.p2p(&value, attribute, gpu.device, peer.device);
      };
      int has_access = 0;
      int has_atomics = 0;
      cuda::Result code = ask(cuda::access_supported, has_access);
      if (code == 0) code = ask(cuda::native_atomic_supported, has_atomics);
      if (code != 0) {
        if (failures++ == 0) {
          first_failure =
              fmt::format("{} to {}: {}", gpu.description.pci.address, peer.description.pci.address,
                          driver.failure(code, "cuDeviceGetP2PAttribute"));
        }
        continue;
      }
      if (has_access == 0 || has_atomics == 0) continue;
      gpu.description.nvlinks.push_back({NvlinkPeer::gpu, peer.description.pci.address, 1});
      int rank = 0;
      if (ask(cuda::performance_rank, rank) == 0) ranks.push_back(rank);
    }
  }
  if (failures > 0) {
    notes.push_back(
        fmt::format("NVLinks unknown, so taken as PCIe, from GPU to GPU in {} of {} directions; {}", failures,
                    gpus.size() * (gpus.size() - 1), first_failure));
  }
  const bool is_joined =
      std::ranges::any_of(gpus, [](const FoundGpu& gpu) { return !gpu.description.nvlinks.empty(); });
  if (!is_joined) return;
  std::string note =
      "numbers of NVLinks unknown: GPUs with native atomics between them are taken as joined by one link, "
      "others by PCIe";
  if (!ranks.empty()) {
    const auto [least, most] = std::ranges::minmax(ranks);
    if (least != most) {
      note +=
          fmt::format("; CUDA ranks the speeds of those pairs from {} to {}, so they differ", least, most);
    }
  }
  notes.push_back(std::move(note));
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
  guess_nvlinks(*driver, library, found, notes);
  std::vector<GpuDescription> gpus;
  for (FoundGpu& gpu : found) gpus.push_back(std::move(gpu.description));
  return gpus;
}

}  // namespace ddl::topology
