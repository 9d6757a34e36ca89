#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>

#include "ddl/error.hpp"
#include "topology/discovery/cuda_driver.hpp"
#include "topology/discovery/dynamic_library.hpp"
#include "topology/discovery/sources.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

namespace cuda = cuda_driver;

/// For drivers that do not tell; a stub library does not.
const char* known_meaning(cuda::Result code) {
  switch (code) {
    case cuda::invalid_value:
      return "invalid value";
    case cuda::out_of_memory:
      return "out of memory";
    case cuda::not_initialized:
      return "the driver is not initialised";
    case cuda::stub_library:
      return "the library is a stub for linking, not a driver";
    case cuda::no_device:
      return "found no device that CUDA can use";
    case cuda::invalid_device:
      return "no such device";
    case cuda::operating_system:
      return "a call to the operating system failed";
    case cuda::system_not_ready:
      return "the system is not ready: a daemon of the driver, as the fabric manager, may not run";
    case cuda::system_driver_mismatch:
      return "the library and the kernel's driver are of different releases";
    case cuda::compat_not_supported_on_device:
      return "the library is newer than the kernel's driver, and this GPU does not allow that";
    case cuda::unknown:
      return "unknown error";
    default:
      return "an error without a name";
  }
}

/// The loaded and initialised driver. Functions that not every release has may be null.
class Driver {
 public:
  // Nothing undoes cuInit, so its code has to stay.
  explicit Driver(const std::string& path) : library_(path, RTLD_NODELETE) {
    const auto init = library_.required<cuda::Init>("cuInit");
    error_name_ = library_.optional<cuda::GetErrorText>("cuGetErrorName");
    error_string_ = library_.optional<cuda::GetErrorText>("cuGetErrorString");
    count = library_.required<cuda::GetCount>("cuDeviceGetCount");
    get = library_.required<cuda::Get>("cuDeviceGet");
    pci_address = library_.required<cuda::GetText>("cuDeviceGetPCIBusId");
    name = library_.optional<cuda::GetText>("cuDeviceGetName");
    attribute = library_.optional<cuda::GetAttribute>("cuDeviceGetAttribute");
    memory = library_.optional<cuda::GetMemory>("cuDeviceTotalMem_v2");
    p2p = library_.optional<cuda::GetP2p>("cuDeviceGetP2PAttribute");
    check(init(0), "cuInit");
  }

  [[nodiscard]] std::string failure(cuda::Result code, std::string_view function) const {
    const auto text = [code](cuda::GetErrorText* tell) -> const char* {
      const char* result = nullptr;
      return tell != nullptr && tell(code, &result) == 0 ? result : nullptr;
    };
    const char* const meaning = text(error_string_);
    const char* const code_name = text(error_name_);
    return fmt::format("{}: {} failed: {} ({}{})", library_.path(), function,
                       meaning != nullptr ? meaning : known_meaning(code),
                       code_name != nullptr ? fmt::format("{}, ", code_name) : "error ", code);
  }
  void check(cuda::Result code, std::string_view function) const {
    if (code != 0) throw Error(ErrorCode::unsupported, failure(code, function));
  }

  cuda::GetCount* count = nullptr;
  cuda::Get* get = nullptr;
  cuda::GetText* pci_address = nullptr;
  cuda::GetText* name = nullptr;
  cuda::GetAttribute* attribute = nullptr;
  cuda::GetMemory* memory = nullptr;
  cuda::GetP2p* p2p = nullptr;

 private:
  DynamicLibrary library_;
  cuda::GetErrorText* error_name_ = nullptr;
  cuda::GetErrorText* error_string_ = nullptr;
};

std::string visible_devices() {
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "not set" : fmt::format("'{}'", std::string_view(value).substr(0, 200));
}

/// As sysfs writes it. CUDA's digits are of either case.
std::string address_of(const Driver& driver, cuda::Device device) {
  std::array<char, 32> text = {};
  driver.check(driver.pci_address(text.data(), static_cast<int>(text.size()) - 1, device),
               "cuDeviceGetPCIBusId");
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  unsigned function = 0;
  if (std::sscanf(text.data(), "%8x:%2x:%2x.%1x", &domain, &bus, &slot, &function) != 4) {
    throw Error(ErrorCode::unsupported, fmt::format("found the PCI address '{}', expected one like "
                                                    "0000:04:00.0",
                                                    text.data()));
  }
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, slot, function);
}

GpuDescription describe(const Driver& driver, cuda::Device device, const std::filesystem::path& sysfs) {
  GpuDescription gpu;
  gpu.pci = pci_place(sysfs, address_of(driver, device));
  std::array<char, 256> name = {};
  if (driver.name != nullptr && driver.name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) {
    gpu.model = name.data();
  }
  int major = 0;
  int minor = 0;
  if (driver.attribute != nullptr && driver.attribute(&major, cuda::compute_capability_major, device) == 0 &&
      driver.attribute(&minor, cuda::compute_capability_minor, device) == 0 && major > 0 && major < 100 &&
      minor >= 0 && minor < 10) {
    gpu.compute_capability = 10 * major + minor;
  }
  std::size_t memory = 0;
  if (driver.memory != nullptr && driver.memory(&memory, device) == 0) gpu.memory = memory;
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
      if (is_known) {  // instances of a GPU that is partitioned
        throw Error(ErrorCode::unsupported,
                    fmt::format("{} is the address of another one as well", gpu.pci.address));
      }
      gpus.push_back({device, std::move(gpu)});
    } catch (const Error& error) {
      notes.push_back(fmt::format("CUDA's GPU {} left out: {}", ordinal, error.what()));
    }
  }
  // CUDA's own order puts the fastest first.
  std::ranges::sort(gpus, {}, [](const FoundGpu& gpu) { return gpu.description.pci.address; });
  return gpus;
}

/// Gives every GPU one NVLink to each that it shares native atomics with: over PCIe there are none.
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
  std::vector<int> ranks;  // of performance, of the pairs that are joined
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
    if (count < 1) {
      throw Error(ErrorCode::unsupported, fmt::format("{}: cuDeviceGetCount found no device", library));
    }
  } catch (const Error& error) {
    if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) throw;
    throw Error(ErrorCode::unsupported,
                fmt::format("{} (CUDA_VISIBLE_DEVICES is {})", error.what(), visible_devices()));
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
