#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "device/emulated/emulated_work.hpp"

/// What the emulated runtime knows, and how work passes through it. What it does is the worst that CUDA
/// allows.
namespace emulated_cuda {

using Clock = std::chrono::steady_clock;

struct Capture;
struct Command;
using CommandPointer = std::shared_ptr<Command>;

struct HardwareQueue {
  std::deque<CommandPointer> waiting;  ///< Have not left it.
  std::size_t entries = 0;             ///< Submitted and not complete.
};
using QueuePointer = std::shared_ptr<HardwareQueue>;

/// What has been submitted to a stream.
struct Command {
  int device;
  std::uint64_t number;  ///< On its device, in the order of submission.
  QueuePointer queue;
  Work work;
  std::vector<CommandPointer> after;  ///< Must be complete before this one leaves its queue.
  bool is_done = false;
  Clock::time_point done_at = {};
};

/// A kernel that has started: some of its blocks may run.
struct RunningKernel {
  int device;
  const Kernel* kernel;
  std::uint64_t blocks;
  std::uint64_t started = 0;
  std::uint64_t ended = 0;
  std::function<void()> completed;
};
using RunningPointer = std::shared_ptr<RunningKernel>;

struct Device {
  std::mutex submission;  ///< Held by the thread that submits. Taken before the runtime's mutex.
  std::atomic<cudaError_t> fault = cudaSuccess;
  bool is_in_use = false;
  bool loads_lazily = false;
  std::vector<QueuePointer> queues;         ///< Of streams, round robin.
  std::vector<QueuePointer> urgent_queues;  ///< Of streams with a high priority.
  std::size_t streams = 0;                  ///< That have got a queue.
  std::size_t urgent_streams = 0;
  cudaStream_t default_stream = nullptr;
  std::vector<cudaStream_t> blocking;  ///< Order themselves with the default stream.
  std::set<std::uint64_t> unfinished;  ///< Commands.
  std::uint64_t submitted = 0;
  std::list<RunningPointer> running;  ///< Kernels, in the order in which they started.
  std::size_t resident = 0;           ///< Blocks.
  std::set<const void*> loaded;       ///< Kernels.
};

constexpr int most_devices = 16;

/// Never destroyed: threads may outlive main.
struct Runtime {
  std::mutex mutex;                 ///< Of all that follows, and of streams, events, captures and devices.
  std::condition_variable changed;  ///< Something is complete, or a device has a fault.
  std::array<Device, most_devices> devices;
  std::vector<QueuePointer> waiting;  ///< Queues that hold commands.
  bool has_progress = false;          ///< Since `advance` has looked at all queues.
};
Runtime& runtime();

using Lock = std::unique_lock<std::mutex>;

// All of these under the runtime's mutex.

/// Device `number`, with its hardware queues, which are made when it is first used.
Device& device_in_use(int number);
/// Lets everything leave its queue that can, and wakes who waits for it.
void advance();
/// Starts the work; `completed` is called when it is over, perhaps at once, and keeps the work alive.
void start(int device, const Work& work, std::function<void()> completed);
void start_kernel(int device, const Kernel& kernel, std::function<void()> completed);
/// Starts blocks for which there is room.
void start_blocks(int device);
void start_replay(const Replay& replay, std::function<void()> completed);
/// Waits until everything is complete that has been submitted to the device, or it has a fault.
void wait_for_device(int device, Lock& lock);
/// Waits until the command is complete, or its device has a fault.
void wait_for(const Command& command, Lock& lock);

/// Submits to the stream, which is not capturing, behind what its stream holds and `after`. Blocks the
/// calling thread while the stream's hardware queue is full. Not under the mutex.
CommandPointer submit(cudaStream_t stream, Work work, std::vector<CommandPointer> after = {});

/// Queues the work on the stream, or has it captured: what functions do that submit. `made` becomes the
/// command, null if it was captured.
cudaError_t enqueue(const char* function, cudaStream_t stream, Work work,
                    std::vector<CommandPointer> after = {}, CommandPointer* made = nullptr);

}  // namespace emulated_cuda

struct CUstream_st {
  int device;
  emulated_cuda::QueuePointer queue;
  bool is_blocking;
  bool is_urgent;
  emulated_cuda::CommandPointer last = nullptr;
  std::shared_ptr<emulated_cuda::Capture> capture = nullptr;
  std::vector<std::size_t> tips = {};  ///< Of its capture: what the stream's next node comes after.
};

struct CUevent_st {
  int device;
  emulated_cuda::CommandPointer recorded = nullptr;
  std::shared_ptr<emulated_cuda::Capture> capture = nullptr;  ///< In which it has been recorded last.
  std::vector<std::size_t> tips = {};
};

struct CUgraph_st {
  std::shared_ptr<emulated_cuda::Graph> graph;
};

namespace emulated_cuda {

/// The stream that a handle stands for: the default one of the current device has several.
cudaStream_t stream_of(cudaStream_t handle);

}  // namespace emulated_cuda
