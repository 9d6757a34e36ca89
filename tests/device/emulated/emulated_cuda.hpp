#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

/// An emulation of CUDA's runtime on threads of the host, for tests of device code on machines without a
/// device. It has the functions of cuda_runtime_api.h that the library uses, with the ordering, blocking,
/// errors and limits of real devices. Code that hangs on a GPU hangs here:
///
/// - Streams share a few hardware queues. Only the first entry of a queue can start, so work waits for
/// earlier entries
///   of other streams.
/// - A hardware queue has a limited number of entries. A submission to a full one blocks its thread, and
/// submissions of
///   all other threads to that device; queries continue.
/// - A device holds a limited number of blocks. The blocks of a kernel start in order, when there is room.
/// - Where CUDA may wait for the whole device (allocation and freeing, the first launch of a kernel that is
/// not loaded,
///   new streams and events), the emulation does.
/// - cudaMemcpy from pageable memory returns before the device has the data. Streams that do not synchronise
///   with the default stream do not wait for it.
/// - Captured work does not run; calls that a capture prohibits fail and invalidate it.
/// - Work may take turns, so that what should wait for other work, and does not, comes before it.
/// - A device's fault is the result of all later calls that use it.
///
/// It emulates neither speed nor nvcc's compilation of kernels.
namespace emulated_cuda {

/// Which of the work that may begin does so.
enum class Turns {
  all,           ///< All of it, at once.
  oldest_first,  ///< One piece after the other, only while the host waits: that of the stream made first.
  newest_first,  ///< The same with the stream made last.
};

/// The emulated machine. Initialised at first use from the variable EMULATED_CUDA, with the names below:
/// "devices=2,peers=0".
struct Machine {
  int devices = 1;
  std::size_t bytes = std::size_t{4} << 30;  ///< Memory of each device.
  bool peers = true;                         ///< Whether devices can access each other's memory.
  int driver = 13000;                        ///< Version for cudaDriverGetVersion; 0: no driver.
  int multiprocessors = 8;
  int blocks_per_multiprocessor = 2;  ///< Resident blocks, whatever their size.
  int connections = 0;                ///< Hardware queues; 0: CUDA_DEVICE_MAX_CONNECTIONS, or else 8.
  std::size_t launches = 1024;        ///< Incomplete entries that a hardware queue holds.
  std::size_t pitch = 2'147'483'647;  ///< Largest pitch of cudaMemcpy2DAsync.
  bool creation_waits = true;  ///< Whether new streams and events wait for the device, which CUDA allows.
  std::string refused;         ///< Name of a function that fails with cudaErrorUnknown.
  bool ucx = true;             ///< Whether UCX supports the devices' memory.
  int unlike = -1;             ///< A device of another kind; -1: none.
  Turns turns = Turns::all;    ///< In the environment: all, oldest_first or newest_first.
};
Machine& machine();

/// Makes a device fail for good: its kernels end, and every call that uses it fails.
void lose_device(int device);
/// The same, with another error than cudaErrorLaunchFailure. Kernels may call it.
void fault(int device, cudaError_t error);
/// Resets all devices to their state before first use. No work may be queued on them, except on lost ones.
void restore_devices();
/// Whether the device is lost. For kernels.
bool is_lost(int device);

/// The identity of a block of a kernel.
struct Spot {
  int device;
  dim3 block;  ///< Index in the grid.
  dim3 grid;
};

/// The parameters of a launch. `kernel` identifies the kernel by a unique address.
struct Launch {
  const void* kernel;
  dim3 grid;
  dim3 threads;
  cudaStream_t stream;
  bool waits = false;  ///< Whether blocks wait for other kernels or the host; they then run concurrently.
};

/// Queues a kernel. Calls `body` for each block, which does the work of all its threads. Returns the result
/// of cudaGetLastError.
cudaError_t launch(const Launch& launch, std::function<void(const Spot&)> body);

/// The pause of a waiting kernel between two polls: yields, and sleeps after many polls.
class Patience {
 public:
  void pause();

 private:
  int pauses_ = 0;
};

/// The number of the capture that the stream is part of; 0: it is not capturing.
unsigned long long capture_of(cudaStream_t stream);

}  // namespace emulated_cuda
