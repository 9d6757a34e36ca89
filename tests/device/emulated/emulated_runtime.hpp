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

/// The state of the emulated runtime, and the flow of work through it. It behaves as badly as CUDA may.
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

/// Work that has been submitted to a stream.
struct Command {
  int device;
  std::uint64_t number;  ///< Position on its device, in the order of submission.
  std::uint64_t stream;  ///< The stream's number.
  QueuePointer queue;
  Work work;
  std::vector<CommandPointer> after;  ///< Commands that must complete before this one leaves its queue.
  bool is_done = false;
  Clock::time_point done_at = {};
};

/// A kernel that has started; some of its blocks may be running.
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
  std::mutex submission;  ///< Held during a submission. Locked before the runtime's mutex.
  std::atomic<cudaError_t> fault = cudaSuccess;
  bool is_in_use = false;
  bool loads_lazily = false;
  std::vector<QueuePointer> queues;         ///< Shared by streams, round-robin.
  std::vector<QueuePointer> urgent_queues;  ///< For streams with a high priority.
  std::size_t streams = 0;                  ///< Number of streams that have got a queue.
  std::size_t urgent_streams = 0;
  cudaStream_t default_stream = nullptr;
  std::vector<cudaStream_t> blocking;  ///< Streams that synchronise with the default stream.
  std::set<std::uint64_t> unfinished;  ///< Numbers of incomplete commands.
  std::uint64_t submitted = 0;
  std::list<RunningPointer> running;  ///< Running kernels, in the order of their start.
  std::size_t resident = 0;           ///< Number of resident blocks.
  std::set<const void*> loaded;       ///< Loaded kernels.
};

constexpr int most_devices = 16;

/// Never destroyed, because threads may outlive main.
struct Runtime {
  std::mutex mutex;                 ///< Protects all members, streams, events, captures and devices.
  std::condition_variable changed;  ///< Signalled on completions and faults.
  std::array<Device, most_devices> devices;
  std::vector<QueuePointer> waiting;  ///< Queues that hold commands.
  bool has_progress = false;          ///< Set by progress since `advance` last checked all queues.
  std::uint64_t streams = 0;          ///< Number of streams that have been made, but for default ones.
  int hosts_waiting = 0;              ///< Number of calls that wait for work.
  bool has_turn = false;              ///< Whether a piece of work has its turn.
};
Runtime& runtime();

using Lock = std::unique_lock<std::mutex>;

// Callers hold the runtime's mutex.

/// Device `number`, with its hardware queues, which are made at first use.
Device& device_in_use(int number);
/// Starts all work that can leave its queue, or has its turn, and wakes up waiting threads.
void advance();
/// Lets a piece of work begin, if work takes turns: the host asks whether some is complete.
void let_begin();
/// Whether work of the first stream comes before work of the second, where work takes turns.
bool is_before(std::uint64_t stream, std::uint64_t other);
/// Starts the work. Calls `completed`, which keeps the work alive, when it is complete, possibly at once.
void start(int device, const Work& work, std::function<void()> completed);
void start_kernel(int device, const Kernel& kernel, std::function<void()> completed);
/// Starts blocks for which there is room.
void start_blocks(int device);
void start_replay(const Replay& replay, std::function<void()> completed);
/// Waits until all work that has been submitted to the device is complete, or until it has a fault.
void wait_for_device(int device, Lock& lock);
/// Waits until the command is complete, or its device has a fault.
void wait_for(const Command& command, Lock& lock);

/// Submits work to a stream that is not capturing, after the stream's earlier work and `after`. Blocks while
/// the stream's hardware queue is full. Callers must not hold the mutex.
CommandPointer submit(cudaStream_t stream, Work work, std::vector<CommandPointer> after = {});

/// Submits the work to the stream, or adds it to the stream's capture. `made` becomes the command, or null if
/// the work was captured.
cudaError_t enqueue(const char* function, cudaStream_t stream, Work work,
                    std::vector<CommandPointer> after = {}, CommandPointer* made = nullptr);

}  // namespace emulated_cuda

struct CUstream_st {
  int device;
  emulated_cuda::QueuePointer queue;
  bool is_blocking;
  bool is_urgent;
  std::uint64_t number;  ///< In the order in which streams were made; 0: a default stream.
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

/// The stream of a handle. The default stream of the current device has several handles.
cudaStream_t stream_of(cudaStream_t handle);

}  // namespace emulated_cuda
