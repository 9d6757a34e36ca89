// Kernels: launching, loading, and how their blocks share a device.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/emulated/emulated_errors.hpp"
#include "device/emulated/emulated_runtime.hpp"
#include "device/emulated/emulated_threads.hpp"

namespace emulated_cuda {
namespace {

/// Blocks that do not wait need not run concurrently: two of the host's processors are enough.
constexpr std::uint64_t most_at_once = 2;

std::uint64_t count(dim3 size) { return std::uint64_t{size.x} * size.y * size.z; }

bool is_valid(const Launch& launch) {
  constexpr unsigned most_x = 2'147'483'647;
  constexpr unsigned most_yz = 65'535;
  constexpr unsigned most_threads = 1024;
  constexpr unsigned most_deep = 64;  // threads in dimension z
  return count(launch.grid) > 0 && launch.grid.x <= most_x && launch.grid.y <= most_yz &&
         launch.grid.z <= most_yz && count(launch.threads) > 0 && count(launch.threads) <= most_threads &&
         launch.threads.z <= most_deep;
}

std::size_t room(const Device& device) {
  const auto most = static_cast<std::size_t>(machine().multiprocessors) *
                    static_cast<std::size_t>(machine().blocks_per_multiprocessor);
  return most - std::min(device.resident, most);
}

void run_block(const RunningPointer& running, std::uint64_t number) {
  const dim3 grid = running->kernel->grid;
  const Spot spot{
      running->device,
      dim3(static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
           static_cast<unsigned>(number / grid.x / grid.y)),
      grid};
  if (!is_lost(running->device)) running->kernel->body(spot);
  end_job_soon();
  const Lock lock(runtime().mutex);
  ++running->ended;
  --runtime().devices[static_cast<std::size_t>(running->device)].resident;
  start_blocks(running->device);
  if (runtime().has_progress) advance();
}

/// The first launch of a kernel that is not loaded waits for the device with the driver's lock held.
void load(int number, const void* kernel) {
  Lock lock(runtime().mutex);
  Device& device = device_in_use(number);
  if (!device.loads_lazily || device.loaded.contains(kernel)) return;
  lock.unlock();
  const std::lock_guard submission(device.submission);
  lock.lock();
  wait_for_device(number, lock);
  device.loaded.insert(kernel);
}

}  // namespace

void start_kernel(int device, const Kernel& kernel, std::function<void()> completed) {
  runtime().devices[static_cast<std::size_t>(device)].running.push_back(std::make_shared<RunningKernel>(
      RunningKernel{device, &kernel, count(kernel.grid), 0, 0, std::move(completed)}));
  start_blocks(device);
}

void start_blocks(int number) {
  Device& device = runtime().devices[static_cast<std::size_t>(number)];
  std::vector<RunningPointer> over;
  std::erase_if(device.running, [&](const RunningPointer& running) {
    if (device.fault != cudaSuccess) running->blocks = running->started;
    const bool is_over = running->ended == running->blocks;
    if (is_over) over.push_back(running);
    return is_over;
  });
  for (const RunningPointer& running : over) {
    running->completed();  // may start other kernels
    runtime().has_progress = true;
  }
  for (const RunningPointer& running : device.running) {
    while (running->started < running->blocks && room(device) > 0 &&
           (running->kernel->waits || running->started - running->ended < most_at_once)) {
      ++device.resident;
      run_on_thread([running, block = running->started++] { run_block(running, block); });
    }
    if (running->started < running->blocks)
      return;  // blocks of later kernels start after all of this kernel's
  }
}

cudaError_t launch(const Launch& launch, std::function<void(const Spot&)> body) {
  const auto attempt = [&] {
    if (const cudaError_t error = obstacle("launch"); error != cudaSuccess) return error;
    if (!is_valid(launch)) return cudaErrorInvalidConfiguration;
    {
      const Lock lock(runtime().mutex);
      if (stream_of(launch.stream)->device != current_device()) return cudaErrorInvalidResourceHandle;
    }
    load(current_device(), launch.kernel);
    return enqueue("launch", launch.stream, Kernel{launch.grid, launch.waits, std::move(body)});
  };
  result(attempt());
  return cudaGetLastError();  // as after <<<>>>, it may be the error of an earlier call
}

}  // namespace emulated_cuda

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  using namespace emulated_cuda;
  if (const cudaError_t error = obstacle("cudaFuncGetAttributes"); error != cudaSuccess) return result(error);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  load(current_device(), kernel);
  return result(obstacle("cudaFuncGetAttributes"));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int, size_t) {
  using namespace emulated_cuda;
  if (const cudaError_t error = obstacle("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
      error != cudaSuccess)
    return result(error);
  load(current_device(), kernel);
  *blocks = machine().blocks_per_multiprocessor;
  return cudaSuccess;
}

}  // extern "C"
