// Hardware queues, through which submitted work goes in order.

#include "device/emulated/emulated_runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "device/emulated/emulated_capture.hpp"
#include "device/emulated/emulated_errors.hpp"
#include "device/emulated/emulated_threads.hpp"

namespace emulated_cuda {
namespace {

std::size_t connections() {
  constexpr int most = 32;
  if (machine().connections > 0) return static_cast<std::size_t>(machine().connections);
  const char* const variable = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return static_cast<std::size_t>(std::clamp(variable == nullptr ? 8 : std::atoi(variable), 1, most));
}

bool can_leave(const Command& command) {
  return runtime().devices[static_cast<std::size_t>(command.device)].fault != cudaSuccess ||
         std::ranges::all_of(command.after, [](const CommandPointer& before) { return before->is_done; });
}

void complete(Command& command) {
  command.is_done = true;
  command.done_at = Clock::now();
  command.after.clear();
  command.work = Mark{};
  --command.queue->entries;
  runtime().devices[static_cast<std::size_t>(command.device)].unfinished.erase(command.number);
  runtime().has_progress = true;
}

/// Runs the job on another thread, and then calls `completed`.
void run_job(std::function<void()> job, std::function<void()> completed) {
  run_on_thread([job = std::move(job), completed = std::move(completed)] {
    job();
    end_job_soon();
    const std::lock_guard lock(runtime().mutex);
    completed();
    advance();
  });
}

void run_host_call(const HostCall& call, std::function<void()> completed) {
  run_host_function([call, completed = std::move(completed)] {
    call.function(call.data);
    const std::lock_guard lock(runtime().mutex);
    completed();
    advance();
  });
}

/// Starts the work that has the next turn, while the host waits.
void take_turns() {
  Runtime& all = runtime();
  while (all.hosts_waiting > 0 && !all.has_turn) {
    QueuePointer next;
    for (const QueuePointer& queue : all.waiting) {
      const Command& first = *queue->waiting.front();
      if (can_leave(first) && (!next || is_before(first.stream, next->waiting.front()->stream))) next = queue;
    }
    if (!next) return;
    const CommandPointer command = std::move(next->waiting.front());
    next->waiting.pop_front();
    if (next->waiting.empty()) std::erase(all.waiting, next);
    all.has_turn = true;
    start(command->device, command->work, [command] {
      complete(*command);
      runtime().has_turn = false;
    });
  }
}

template <typename IsOver>
void wait_until(Lock& lock, const IsOver& is_over) {
  Runtime& all = runtime();
  ++all.hosts_waiting;
  if (machine().turns != Turns::all) take_turns();
  all.changed.wait(lock, is_over);
  --all.hosts_waiting;
}

}  // namespace

Runtime& runtime() {
  static auto* const all = new Runtime;
  return *all;
}

Device& device_in_use(int number) {
  Device& device = runtime().devices[static_cast<std::size_t>(number)];
  if (std::exchange(device.is_in_use, true)) return device;
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  device.loads_lazily = loading == nullptr || std::string(loading) != "EAGER";
  for (auto* queues : {&device.queues, &device.urgent_queues}) {
    for (std::size_t i = 0; i < connections(); ++i) queues->push_back(std::make_shared<HardwareQueue>());
  }
  device.default_stream = new CUstream_st{number, device.queues[0], false, false, 0};
  device.streams = 1;
  return device;
}

cudaStream_t stream_of(cudaStream_t handle) {
  if (handle != nullptr && handle != cudaStreamLegacy) return handle;
  return device_in_use(current_device()).default_stream;
}

void start(int device, const Work& work, std::function<void()> completed) {
  if (is_lost(device)) return completed();
  std::visit(
      [&]<typename Kind>(const Kind& one) {
        if constexpr (std::is_same_v<Kind, Copy>) {
          run_job(one.run, std::move(completed));
        } else if constexpr (std::is_same_v<Kind, HostCall>) {
          run_host_call(one, std::move(completed));
        } else if constexpr (std::is_same_v<Kind, Kernel>) {
          start_kernel(device, one, std::move(completed));
        } else if constexpr (std::is_same_v<Kind, Replay>) {
          start_replay(one, std::move(completed));
        } else {
          if constexpr (std::is_same_v<Kind, ValueWrite>)
            __atomic_store_n(one.to, one.value, __ATOMIC_RELEASE);
          completed();
        }
      },
      work);
}

bool is_before(std::uint64_t stream, std::uint64_t other) {
  return machine().turns == Turns::oldest_first ? stream < other : stream > other;
}

void advance() {
  Runtime& all = runtime();
  if (machine().turns != Turns::all) {
    take_turns();
    return all.changed.notify_all();
  }
  do {
    all.has_progress = false;
    for (std::size_t i = 0; i < all.waiting.size(); ++i) {
      auto& waiting = all.waiting[i]->waiting;
      while (!waiting.empty() && can_leave(*waiting.front())) {
        const CommandPointer command = std::move(waiting.front());
        waiting.pop_front();
        start(command->device, command->work, [command] { complete(*command); });
      }
    }
    std::erase_if(all.waiting, [](const QueuePointer& queue) { return queue->waiting.empty(); });
  } while (all.has_progress);
  all.changed.notify_all();
}

void let_begin() {
  ++runtime().hosts_waiting;
  advance();
  --runtime().hosts_waiting;
}

void wait_for_device(int device, Lock& lock) {
  Device& waited = device_in_use(device);
  const std::uint64_t last = waited.submitted;
  wait_until(lock, [&] {
    return waited.fault != cudaSuccess || waited.unfinished.empty() || *waited.unfinished.begin() > last;
  });
}

void wait_for(const Command& command, Lock& lock) {
  wait_until(lock, [&] { return command.is_done || is_lost(command.device); });
}

CommandPointer submit(cudaStream_t stream, Work work, std::vector<CommandPointer> after) {
  Runtime& all = runtime();
  Device& device = all.devices[static_cast<std::size_t>(stream->device)];
  const std::lock_guard submission(device.submission);
  Lock lock(all.mutex);
  HardwareQueue& queue = *stream->queue;
  wait_until(lock, [&] { return queue.entries < machine().launches || device.fault != cudaSuccess; });
  const auto follow = [&](const CommandPointer& before) {
    if (before && !before->is_done) after.push_back(before);
  };
  const std::vector<CommandPointer> asked = std::move(after);
  after.clear();
  for (const CommandPointer& before : asked) follow(before);
  follow(stream->last);
  if (stream == device.default_stream) {
    for (const cudaStream_t other : device.blocking) follow(other->last);
  } else if (stream->is_blocking) {
    follow(device.default_stream->last);
  }
  auto command = std::make_shared<Command>(Command{stream->device, ++device.submitted, stream->number,
                                                   stream->queue, std::move(work), std::move(after)});
  device.unfinished.insert(device.unfinished.end(), command->number);
  stream->last = command;
  ++queue.entries;
  if (queue.waiting.empty()) all.waiting.push_back(stream->queue);
  queue.waiting.push_back(command);
  advance();
  return command;
}

cudaError_t enqueue(const char* function, cudaStream_t handle, Work work, std::vector<CommandPointer> after,
                    CommandPointer* made) {
  if (const cudaError_t error = obstacle(function); error != cudaSuccess) return result(error);
  cudaStream_t stream = nullptr;
  {
    const Lock lock(runtime().mutex);
    stream = stream_of(handle);
    if (const cudaError_t error = capture_obstacle(*stream); error != cudaSuccess) return result(error);
    if (stream->capture) {
      capture_work(*stream, std::move(work));
      return cudaSuccess;
    }
  }
  CommandPointer command = submit(stream, std::move(work), std::move(after));
  if (made != nullptr) *made = std::move(command);
  return cudaSuccess;
}

}  // namespace emulated_cuda
