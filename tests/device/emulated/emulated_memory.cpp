// Memory of devices and of the host, and copies. All memory is the host's, in files that other processes can
// map.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/emulated/emulated_capture.hpp"
#include "device/emulated/emulated_errors.hpp"
#include "device/emulated/emulated_runtime.hpp"

using namespace emulated_cuda;

namespace {

enum class MemoryKind { device, pinned, mapped };  // mapped: another process's

struct Allocation {
  std::size_t bytes;
  int file;
  int device;
  MemoryKind kind;
};

using Allocations = std::map<std::uintptr_t, Allocation>;

// Callers hold the runtime's mutex.
Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}
std::size_t& taken(int device) {
  static std::size_t bytes[most_devices] = {};
  return bytes[device];
}

Allocations::iterator allocation_at(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  auto found = allocations().upper_bound(place);
  if (found == allocations().begin()) return allocations().end();
  --found;
  return place < found->first + found->second.bytes ? found : allocations().end();
}

bool is_known(const void* address) { return allocation_at(address) != allocations().end(); }

/// Allocates memory. Waits for the device, as CUDA may.
cudaError_t allocate(const char* function, void** memory, std::size_t bytes, MemoryKind kind) {
  if (const cudaError_t error = obstacle(function); error != cudaSuccess) return error;
  Lock lock(runtime().mutex);
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  const int device = current_device();
  wait_for_device(device, lock);
  if (const cudaError_t error = obstacle(function); error != cudaSuccess) return error;
  const bool is_devices = kind == MemoryKind::device;
  if (is_devices && (bytes > machine().bytes || taken(device) > machine().bytes - bytes))
    return cudaErrorMemoryAllocation;
  const int file = memfd_create("emulated_cuda", MFD_CLOEXEC);
  const std::size_t size = bytes == 0 ? 1 : bytes;
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) return cudaErrorMemoryAllocation;
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return cudaErrorMemoryAllocation;
  if (is_devices) {
    taken(device) += size;
    // Stands in for old content: of workspaces only at both ends, because to touch all of them slows tests down.
    constexpr std::size_t most = std::size_t{8} << 20;
    const std::size_t filled = size <= most ? size : most / 8;
    std::memset(address, 0xa5, filled);
    std::memset(static_cast<char*>(address) + size - filled, 0xa5, filled);
  }
  allocations()[reinterpret_cast<std::uintptr_t>(address)] = {size, file, device, kind};
  *memory = address;
  return cudaSuccess;
}

/// Frees memory, after it has waited for the device. Memory of a lost device is not freed.
cudaError_t give_back(const char* function, void* memory, MemoryKind kind) {
  if (const cudaError_t error = obstacle(function); error != cudaSuccess) return error;
  if (memory == nullptr) return cudaSuccess;
  Lock lock(runtime().mutex);
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  const auto place = reinterpret_cast<std::uintptr_t>(memory);
  auto found = allocations().find(place);
  if (found == allocations().end() || found->second.kind != kind) return cudaErrorInvalidValue;
  const int device = found->second.device;
  wait_for_device(device, lock);
  if (is_lost(device)) return runtime().devices[static_cast<std::size_t>(device)].fault;
  found = allocations().find(place);
  munmap(memory, found->second.bytes);
  close(found->second.file);
  if (kind == MemoryKind::device) taken(device) -= found->second.bytes;
  allocations().erase(found);
  return cudaSuccess;
}

/// As memset. Large memory that becomes zeros gives its pages back, which is faster.
void set_bytes(void* target, int value, std::size_t bytes) {
  constexpr std::size_t large = std::size_t{1} << 20, page = 4096;
  const bool is_whole = reinterpret_cast<std::uintptr_t>(target) % page == 0 && bytes % page == 0;
  if (value == 0 && bytes >= large && is_whole && madvise(target, bytes, MADV_REMOVE) == 0) return;
  std::memset(target, value, bytes);
}

void wait_for_made(const CommandPointer& made) {
  if (!made) return;  // captured
  Lock lock(runtime().mutex);
  wait_for(*made, lock);
}

/// Copies between page-locked and device memory are asynchronous; copies with other memory of the host block.
cudaError_t copy(const char* function, const void* source, const void* target, cudaStream_t stream,
                 std::function<void()> run) {
  bool waits = false;
  {
    const Lock lock(runtime().mutex);
    waits = !is_known(source) || !is_known(target);
  }
  CommandPointer made;
  const cudaError_t error = enqueue(function, stream, Copy{std::move(run)}, {}, &made);
  if (error == cudaSuccess && waits) wait_for_made(made);
  return error;
}

/// How long data that cudaMemcpy has staged are on the way: longer than a small kernel takes.
constexpr std::chrono::milliseconds delay(5);

bool goes_to_device_from_pageable(const void* source, const void* target) {
  const Lock lock(runtime().mutex);
  const auto found = allocation_at(target);
  return !is_known(source) && found != allocations().end() && found->second.kind != MemoryKind::pinned;
}

cudaError_t refuse_unsafe_call() {
  const Lock lock(runtime().mutex);
  if (const cudaError_t error = capture_obstacle(*stream_of(nullptr)); error != cudaSuccess) return error;
  return unsafe_call();
}

struct IpcHandle {
  pid_t process;
  int file;
  std::size_t bytes;
  int device;
};
static_assert(sizeof(IpcHandle) <= sizeof(cudaIpcMemHandle_t));

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return result(allocate("cudaMalloc", memory, bytes, MemoryKind::device));
}
cudaError_t cudaFree(void* memory) { return result(give_back("cudaFree", memory, MemoryKind::device)); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  return result(allocate("cudaHostAlloc", memory, bytes, MemoryKind::pinned));
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock(runtime().mutex);
  *total = machine().bytes;
  *free = *total - taken(current_device());
  return result(obstacle("cudaMemGetInfo"));
}
cudaError_t cudaFreeHost(void* memory) {
  return result(give_back("cudaFreeHost", memory, MemoryKind::pinned));
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int) {
  *device = host;
  return result(obstacle("cudaHostGetDevicePointer"));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  if (const cudaError_t error = obstacle("cudaIpcGetMemHandle"); error != cudaSuccess) return result(error);
  const Lock lock(runtime().mutex);
  const auto found = allocation_at(memory);
  if (found == allocations().end()) return result(cudaErrorInvalidValue);
  const IpcHandle own{getpid(), found->second.file, found->second.bytes, found->second.device};
  std::memcpy(handle, &own, sizeof own);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned int) {
  if (const cudaError_t error = obstacle("cudaIpcOpenMemHandle"); error != cudaSuccess) return result(error);
  IpcHandle from{};
  std::memcpy(&from, &handle, sizeof from);
  if (from.process == getpid()) return result(cudaErrorInvalidDevice);
  if (!machine().peers) return result(cudaErrorPeerAccessUnsupported);
  const std::string path = fmt::format("/proc/{}/fd/{}", from.process, from.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return result(cudaErrorMapBufferObjectFailed);
  void* const address = mmap(nullptr, from.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return result(cudaErrorMapBufferObjectFailed);
  const Lock lock(runtime().mutex);
  allocations()[reinterpret_cast<std::uintptr_t>(address)] = {from.bytes, file, current_device(),
                                                              MemoryKind::mapped};
  *memory = address;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return result(give_back("cudaIpcCloseMemHandle", memory, MemoryKind::mapped));
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return copy("cudaMemcpyAsync", source, target, stream, [=] { std::memcpy(target, source, bytes); });
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) return result(error);
  const bool is_late = goes_to_device_from_pageable(source, target);
  const auto staged = std::make_shared<std::vector<char>>(is_late ? bytes : 0);
  void* const first_target = is_late ? staged->data() : target;
  CommandPointer made;
  const cudaError_t error =
      enqueue("cudaMemcpy", nullptr, Copy{[=] { std::memcpy(first_target, source, bytes); }}, {}, &made);
  wait_for_made(made);
  if (error != cudaSuccess) return error;
  if (!is_late) return result(obstacle("cudaMemcpy"));
  return enqueue("cudaMemcpy", nullptr, Copy{[=] {
                   std::this_thread::sleep_for(delay);
                   std::memcpy(target, staged->data(), bytes);
                 }});
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (const cudaError_t error = obstacle("cudaMemcpy2DAsync"); error != cudaSuccess) return result(error);
  if (width > target_pitch || width > source_pitch || target_pitch > machine().pitch ||
      source_pitch > machine().pitch)
    return result(cudaErrorInvalidPitchValue);
  return copy("cudaMemcpy2DAsync", source, target, stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(target) + row * target_pitch,
                  static_cast<const char*>(source) + row * source_pitch, width);
    }
  });
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  return enqueue("cudaMemsetAsync", stream, Copy{[=] { set_bytes(target, value, bytes); }});
}

cudaError_t cudaMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  if (width > pitch) return result(cudaErrorInvalidPitchValue);
  return enqueue("cudaMemset2DAsync", stream, Copy{[=] {
                   for (size_t row = 0; row < height; ++row)
                     std::memset(static_cast<char*>(target) + row * pitch, value, width);
                 }});
}

cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) return result(error);
  return enqueue("cudaMemset", nullptr, Copy{[=] { set_bytes(target, value, bytes); }});
}

}  // extern "C"
