#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

/// CUDA's runtime on the host's threads, for tests of what the library has devices do where there is none:
/// the functions of cuda_runtime_api.h that it uses, with their order, their waits, their errors and the
/// limits of real devices. Code that hangs on a GPU hangs here:
///
/// - Streams share a few hardware queues. Only the first entry of a queue can start, so work waits for what
///   other streams have put in front of it.
/// - A hardware queue takes so many entries. A submission to a full one blocks its thread, and submissions of
///   all other threads to that device; queries go on.
/// - A device holds so many blocks. Those of a kernel start in order, as there is room.
/// - Where CUDA may wait for the whole device (allocation, giving back, the first launch of a kernel that is
///   not loaded, new streams and events), this does.
/// - What a stream captures is not run, and calls that a capture prohibits fail and invalidate it.
/// - The fault of a device is the result of all later calls that use it.
///
/// It says nothing about speed, or about what nvcc makes of a kernel.
namespace emulated_cuda {

/// What there is. From the variable EMULATED_CUDA when it is first asked for: the names below with values, as
/// in "devices=2,peers=0".
struct Machine {
  int devices = 1;
  std::size_t bytes = std::size_t{4} << 30;  ///< Of memory, of each device.
  bool peers = true;                         ///< Whether devices reach each other's memory.
  int driver = 13000;                        ///< As cudaDriverGetVersion; 0: none.
  int multiprocessors = 8;
  int blocks_per_multiprocessor = 2;  ///< Of kernels that run at a time, whatever their blocks' size.
  int connections = 0;                ///< Hardware queues; 0: CUDA_DEVICE_MAX_CONNECTIONS, or else 8.
  std::size_t launches = 1024;        ///< Entries of a hardware queue that are submitted and not complete.
  std::size_t pitch = 2'147'483'647;  ///< The greatest of cudaMemcpy2DAsync.
  bool creation_waits = true;  ///< Whether new streams and events wait for the device, which CUDA allows.
  std::string refused;         ///< A function that fails, with cudaErrorUnknown.
  bool ucx = true;             ///< Whether UCX knows the devices' memory.
  int unlike = -1;             ///< A device of another kind; -1: none.
};
Machine& machine();

/// From now on the device is gone: its kernels end, and every call that uses it fails.
void lose_device(int device);
/// The same, with another error than cudaErrorLaunchFailure. Kernels may call it.
void fault(int device, cudaError_t error);
/// All devices are as they were before they were first used. Nothing may be queued on them, but for what a
/// lost device has dropped.
void restore_devices();
/// Whether the device that a kernel runs on is gone. For kernels.
bool is_lost(int device);

/// What a block of a kernel is told.
struct Spot {
  int device;
  dim3 block;  ///< In the grid.
  dim3 grid;
};

/// How a kernel is launched. `kernel` says which one it is: any address that is no other kernel's.
struct Launch {
  const void* kernel;
  dim3 grid;
  dim3 threads;
  cudaStream_t stream;
  bool waits = false;  ///< For other kernels or the host: then its blocks run at the same time.
};

/// Queues a kernel; `body` is called for each block, and does what all threads of the block do. Returns what
/// cudaGetLastError says after it.
cudaError_t launch(const Launch& launch, std::function<void(const Spot&)> body);

/// What a kernel that waits does between two looks: it gives way to others, and naps when nothing happens for
/// long.
class Patience {
 public:
  void pause();

 private:
  int pauses_ = 0;
};

/// The number of the capture that the stream is part of; 0: it is not capturing.
unsigned long long capture_of(cudaStream_t stream);

}  // namespace emulated_cuda
