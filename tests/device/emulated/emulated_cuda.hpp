#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

/// CUDA's runtime on the host's threads, for tests of what the library has devices do where there is none:
/// the functions of cuda_runtime_api.h that it uses, with their order, their waits and their errors. A stream
/// is a thread; a kernel is a function that the stream calls. Where CUDA may wait for the whole device
/// (allocation, and giving back), this does, so that code that must not shows up. It says nothing about
/// speed, or about what nvcc makes of a kernel.
namespace emulated_cuda {

/// What there is. From the variable EMULATED_CUDA when it is first asked for: words as "devices=2",
/// separated by commas; `bytes` of memory each, `peers` 0 or 1, `driver` as cudaDriverGetVersion (0: none),
/// `multiprocessors` each, `refused`: a function that fails (with cudaErrorUnknown), `ucx` 0 or 1.
struct Machine {
  int devices = 1;
  std::size_t bytes = std::size_t{4} << 30;
  bool peers = true;
  int driver = 13000;
  int multiprocessors = 8;
  std::string refused;
  bool ucx = true;  ///< Whether UCX knows the devices' memory.
  int unlike = -1;  ///< A device of another kind; -1: none.
};
Machine& machine();

/// From now on the device is gone: its kernels end, and every call that uses it fails.
void lose_device(int device);
/// All devices are as they were.
void restore_devices();
/// Whether the device that a kernel runs on is gone. For kernels.
bool is_lost(int device);

/// Queues a kernel; it is told on which device it is.
cudaError_t launch(cudaStream_t stream, std::function<void(int device)> kernel);

}  // namespace emulated_cuda
