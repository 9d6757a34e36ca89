#include "device/emulated/emulated_cuda.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Operation = std::function<void()>;

/// What an event's record becomes once its stream has come to it.
class Moment {
 public:
  void pass() {
    const std::lock_guard lock(mutex_);
    at_ = Clock::now();
    has_passed_ = true;
    passed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [&] { return has_passed_; });
  }
  bool has_passed() {
    const std::lock_guard lock(mutex_);
    return has_passed_;
  }
  Clock::time_point at() {
    const std::lock_guard lock(mutex_);
    return at_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  bool has_passed_ = false;
  Clock::time_point at_;
};
using MomentPointer = std::shared_ptr<Moment>;

/// Does its operations one after the other, on a thread that ends once the owner has let go and all is done.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  explicit Queue(int of) : device(of) {}
  void start() {
    std::thread([own = shared_from_this()] { own->work(); }).detach();
  }
  void push(Operation operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
    changed_.notify_all();
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return operations_.empty() && !is_busy_;
  }
  void wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return operations_.empty() && !is_busy_; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    is_let_go_ = true;
    changed_.notify_all();
  }
  MomentPointer mark() {
    auto moment = std::make_shared<Moment>();
    push([moment] { moment->pass(); });
    return moment;
  }

  const int device;

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !operations_.empty() || is_let_go_; });
      if (operations_.empty()) return;
      const Operation operation = std::move(operations_.front());
      operations_.pop_front();
      is_busy_ = true;
      lock.unlock();
      operation();
      lock.lock();
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  bool is_busy_ = false;
  bool is_let_go_ = false;
};
using QueuePointer = std::shared_ptr<Queue>;

struct Allocation {
  std::size_t bytes;
  int file;
  int device;
  bool is_pinned;  // the host's
  bool is_mapped;  // another process's
};

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool is_in_host_function = false;

constexpr int most_devices = 16;

}  // namespace

struct CUstream_st {
  QueuePointer queue;
  bool is_blocking;
};

struct CUevent_st {
  std::mutex mutex;
  MomentPointer recorded;
};

namespace {

/// All that the runtime knows. Never destroyed: threads may outlive main.
struct Runtime {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> memory;
  std::size_t taken[most_devices] = {};
  std::vector<QueuePointer> queues;    // of all streams that have not been let go and done
  std::vector<cudaStream_t> blocking;  // that order themselves with the default stream
  QueuePointer default_queues[most_devices];
  QueuePointer host_functions;
  std::atomic<bool> lost[most_devices] = {};
};

Runtime& runtime() {
  static Runtime* const all = new Runtime;
  return *all;
}

emulated_cuda::Machine from_environment() {
  emulated_cuda::Machine machine;
  const char* const words = std::getenv("EMULATED_CUDA");
  std::istringstream stream(words == nullptr ? "" : words);
  for (std::string word; std::getline(stream, word, ',');) {
    const auto at = word.find('=');
    const std::string name = word.substr(0, at);
    const std::string value = at == std::string::npos ? "" : word.substr(at + 1);
    if (name == "devices")
      machine.devices = std::stoi(value);
    else if (name == "bytes")
      machine.bytes = std::stoull(value);
    else if (name == "peers")
      machine.peers = value == "1";
    else if (name == "driver")
      machine.driver = std::stoi(value);
    else if (name == "multiprocessors")
      machine.multiprocessors = std::stoi(value);
    else if (name == "ucx")
      machine.ucx = value == "1";
    else if (name == "refused")
      machine.refused = value;
    else
      throw std::runtime_error("EMULATED_CUDA: unknown word " + word);
  }
  return machine;
}

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

/// What stands in the way of `function` on the current device.
cudaError_t obstacle(const char* function) {
  const emulated_cuda::Machine& machine = emulated_cuda::machine();
  if (machine.driver < CUDART_VERSION) return cudaErrorInsufficientDriver;
  if (machine.devices == 0) return cudaErrorNoDevice;
  if (is_in_host_function) return cudaErrorNotPermitted;
  if (machine.refused == function) return cudaErrorUnknown;
  if (emulated_cuda::is_lost(current_device)) return cudaErrorLaunchFailure;
  return cudaSuccess;
}

QueuePointer open_queue(int device) {
  auto queue = std::make_shared<Queue>(device);
  queue->start();
  Runtime& all = runtime();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.queues, [](const QueuePointer& known) { return known.use_count() == 1; });
  all.queues.push_back(queue);
  return queue;
}

QueuePointer default_queue(int device) {
  QueuePointer& queue = runtime().default_queues[device];
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!queue) queue = open_queue(device);
  return queue;
}

QueuePointer queue_of(cudaStream_t stream) {
  return stream == nullptr ? default_queue(current_device) : stream->queue;
}

/// The default stream and those that are not cudaStreamNonBlocking wait for each other.
void order_with_default(cudaStream_t stream) {
  std::vector<MomentPointer> before;
  if (stream == nullptr) {
    Runtime& all = runtime();
    const std::lock_guard lock(all.mutex);
    for (const cudaStream_t other : all.blocking) {
      if (other->queue->device == current_device) before.push_back(other->queue->mark());
    }
  } else if (stream->is_blocking) {
    before.push_back(default_queue(stream->queue->device)->mark());
  }
  for (const MomentPointer& moment : before) queue_of(stream)->push([moment] { moment->wait(); });
}

cudaError_t enqueue(const char* function, cudaStream_t stream, Operation operation) {
  if (const cudaError_t error = obstacle(function); error != cudaSuccess) return result(error);
  const QueuePointer queue = queue_of(stream);
  if (queue->device != current_device) return result(cudaErrorInvalidResourceHandle);
  order_with_default(stream);
  const int device = queue->device;
  queue->push([device, operation = std::move(operation)] {
    if (!emulated_cuda::is_lost(device)) operation();
  });
  return cudaSuccess;
}

void wait_for_device(int device) {
  std::vector<QueuePointer> queues;
  {
    const std::lock_guard lock(runtime().mutex);
    for (const QueuePointer& queue : runtime().queues) {
      if (queue->device == device) queues.push_back(queue);
    }
  }
  for (const QueuePointer& queue : queues) queue->wait_until_idle();
}

std::map<std::uintptr_t, Allocation>::iterator allocation_at(const void* address) {
  auto& memory = runtime().memory;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  auto found = memory.upper_bound(place);
  if (found == memory.begin()) return memory.end();
  --found;
  return place < found->first + found->second.bytes ? found : memory.end();
}

bool is_known(const void* address) {
  const std::lock_guard lock(runtime().mutex);
  return allocation_at(address) != runtime().memory.end();
}

cudaError_t allocate(void** memory, std::size_t bytes, bool is_pinned) {
  wait_for_device(current_device);
  Runtime& all = runtime();
  const std::lock_guard lock(all.mutex);
  std::size_t& taken = all.taken[current_device];
  if (!is_pinned &&
      (bytes > emulated_cuda::machine().bytes || taken > emulated_cuda::machine().bytes - bytes)) {
    return result(cudaErrorMemoryAllocation);
  }
  const int file = memfd_create("emulated_cuda", MFD_CLOEXEC);
  const std::size_t size = bytes == 0 ? 1 : bytes;
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) return result(cudaErrorMemoryAllocation);
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return result(cudaErrorMemoryAllocation);
  if (!is_pinned) {
    taken += size;
    std::memset(address, 0xa5, size);  // what was there before
  }
  all.memory[reinterpret_cast<std::uintptr_t>(address)] = {size, file, current_device, is_pinned, false};
  *memory = address;
  return cudaSuccess;
}

cudaError_t give_back(void* memory, bool is_pinned, bool is_mapped) {
  if (memory == nullptr) return cudaSuccess;
  int device = 0;
  {
    const std::lock_guard lock(runtime().mutex);
    const auto found = runtime().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == runtime().memory.end() || found->second.is_pinned != is_pinned ||
        found->second.is_mapped != is_mapped) {
      return result(cudaErrorInvalidValue);
    }
    device = found->second.device;
  }
  wait_for_device(device);
  Runtime& all = runtime();
  const std::lock_guard lock(all.mutex);
  const auto found = all.memory.find(reinterpret_cast<std::uintptr_t>(memory));
  munmap(memory, found->second.bytes);
  close(found->second.file);
  if (!is_pinned && !is_mapped) all.taken[device] -= found->second.bytes;
  all.memory.erase(found);
  return cudaSuccess;
}

/// Page-locked memory and the device's is copied in its turn; other memory of the host is read at once, or
/// waited for.
cudaError_t copy(const char* function, const void* source, const void* target, cudaStream_t stream,
                 Operation operation) {
  const bool waits = !is_known(source) || !is_known(target);
  const cudaError_t error = enqueue(function, stream, std::move(operation));
  if (error == cudaSuccess && waits) queue_of(stream)->wait_until_idle();
  return error;
}

struct IpcHandle {
  pid_t process;
  int file;
  std::size_t bytes;
  int device;
};
static_assert(sizeof(IpcHandle) <= sizeof(cudaIpcMemHandle_t));

}  // namespace

namespace emulated_cuda {

Machine& machine() {
  static Machine* const own = new Machine(from_environment());
  return *own;
}

void lose_device(int device) { runtime().lost[device] = true; }
void restore_devices() {
  for (auto& lost : runtime().lost) lost = false;
}
bool is_lost(int device) { return runtime().lost[device]; }

cudaError_t launch(cudaStream_t stream, std::function<void(int device)> kernel) {
  const int device = current_device;
  enqueue("launch", stream, [device, kernel = std::move(kernel)] { kernel(device); });
  return cudaGetLastError();  // as after <<<>>>: of calls before it as well
}

}  // namespace emulated_cuda

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const emulated_cuda::Machine& machine = emulated_cuda::machine();
  *count = 0;
  if (machine.driver < CUDART_VERSION) return result(cudaErrorInsufficientDriver);
  if (machine.devices == 0) return result(cudaErrorNoDevice);
  *count = machine.devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulated_cuda::machine().devices) return result(cudaErrorInvalidDevice);
  current_device = device;
  return result(obstacle("cudaSetDevice"));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = obstacle("cudaGetDeviceProperties"); error != cudaSuccess)
    return result(error);
  *properties = {};
  fmt::format_to_n(properties->name, sizeof properties->name - 1, "Emulated GPU");
  properties->major = 9;
  if (device == emulated_cuda::machine().unlike) {
    *properties = {};
    fmt::format_to_n(properties->name, sizeof properties->name - 1, "Other GPU");
    properties->major = 8;
  }
  properties->multiProcessorCount = emulated_cuda::machine().multiprocessors;
  properties->totalGlobalMem = emulated_cuda::machine().bytes;
  properties->pciBusID = device + 1;
  std::memcpy(properties->uuid.bytes, "emulated device", 16);
  properties->uuid.bytes[15] = static_cast<char>(device + 1);
  return cudaSuccess;
}

/// Adapters write to the memory of these devices as the host does: there is nothing to flush.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (const cudaError_t error = obstacle("cudaDeviceGetAttribute"); error != cudaSuccess)
    return result(error);
  *value = 0;
  if (attribute == cudaDevAttrGPUDirectRDMAFlushWritesOptions)
    *value = cudaFlushGPUDirectRDMAWritesOptionHost;
  return cudaSuccess;
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                               cudaFlushGPUDirectRDMAWritesScope) {
  return result(obstacle("cudaDeviceFlushGPUDirectRDMAWrites"));
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (const cudaError_t error = obstacle("cudaDeviceGetPCIBusId"); error != cudaSuccess) return result(error);
  *fmt::format_to_n(text, static_cast<std::size_t>(bytes) - 1, "0000:{:02x}:00.0", device + 1).out = '\0';
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = emulated_cuda::machine().peers ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) {
  if (const cudaError_t error = obstacle("cudaDeviceEnablePeerAccess"); error != cudaSuccess)
    return result(error);
  return result(emulated_cuda::machine().peers ? cudaSuccess : cudaErrorPeerAccessUnsupported);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = obstacle("cudaDeviceSynchronize"); error != cudaSuccess) return result(error);
  wait_for_device(current_device);
  return result(obstacle("cudaDeviceSynchronize"));
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulated_cuda::machine().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorPeerAccessUnsupported:
      return "cudaErrorPeerAccessUnsupported";
    case cudaErrorNotPermitted:
      return "cudaErrorNotPermitted";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    default:
      return "an emulated error";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorPeerAccessUnsupported:
      return "peer access is not supported between these two devices";
    default:
      return cudaGetErrorName(error);
  }
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = obstacle("cudaMalloc"); error != cudaSuccess) return result(error);
  return allocate(memory, bytes, false);
}
cudaError_t cudaFree(void* memory) { return give_back(memory, false, false); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  if (const cudaError_t error = obstacle("cudaHostAlloc"); error != cudaSuccess) return result(error);
  return allocate(memory, bytes, true);
}
cudaError_t cudaFreeHost(void* memory) { return give_back(memory, true, false); }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  if (const cudaError_t error = obstacle("cudaIpcGetMemHandle"); error != cudaSuccess) return result(error);
  const std::lock_guard lock(runtime().mutex);
  const auto found = allocation_at(memory);
  if (found == runtime().memory.end()) return result(cudaErrorInvalidValue);
  const IpcHandle own{getpid(), found->second.file, found->second.bytes, found->second.device};
  std::memcpy(handle, &own, sizeof own);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned int) {
  if (const cudaError_t error = obstacle("cudaIpcOpenMemHandle"); error != cudaSuccess) return result(error);
  IpcHandle from{};
  std::memcpy(&from, &handle, sizeof from);
  if (from.process == getpid()) return result(cudaErrorInvalidDevice);
  if (!emulated_cuda::machine().peers) return result(cudaErrorPeerAccessUnsupported);
  const std::string path = fmt::format("/proc/{}/fd/{}", from.process, from.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return result(cudaErrorMapBufferObjectFailed);
  void* const address = mmap(nullptr, from.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return result(cudaErrorMapBufferObjectFailed);
  const std::lock_guard lock(runtime().mutex);
  runtime().memory[reinterpret_cast<std::uintptr_t>(address)] = {from.bytes, file, current_device, false,
                                                                 true};
  *memory = address;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* memory) { return give_back(memory, false, true); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (const cudaError_t error = obstacle("cudaStreamCreateWithFlags"); error != cudaSuccess)
    return result(error);
  *stream = new CUstream_st{open_queue(current_device), (flags & cudaStreamNonBlocking) == 0};
  if ((*stream)->is_blocking) {
    const std::lock_guard lock(runtime().mutex);
    runtime().blocking.push_back(*stream);
  }
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->queue->let_go();
  {
    const std::lock_guard lock(runtime().mutex);
    std::erase(runtime().blocking, stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = obstacle("cudaStreamQuery"); error != cudaSuccess) return result(error);
  // Not an error that cudaGetLastError keeps from anybody: as CUDA, it is kept.
  return queue_of(stream)->is_idle() ? cudaSuccess : result(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = obstacle("cudaStreamSynchronize"); error != cudaSuccess) return result(error);
  queue_of(stream)->wait_until_idle();
  return result(obstacle("cudaStreamSynchronize"));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  MomentPointer moment;
  {
    const std::lock_guard lock(event->mutex);
    moment = event->recorded;
  }
  if (const cudaError_t error = obstacle("cudaStreamWaitEvent"); error != cudaSuccess) return result(error);
  if (moment) queue_of(stream)->push([moment] { moment->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  if (const cudaError_t error = obstacle("cudaEventCreateWithFlags"); error != cudaSuccess)
    return result(error);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = obstacle("cudaEventRecord"); error != cudaSuccess) return result(error);
  order_with_default(stream);
  const std::lock_guard lock(event->mutex);
  event->recorded = queue_of(stream)->mark();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = obstacle("cudaEventQuery"); error != cudaSuccess) return result(error);
  const std::lock_guard lock(event->mutex);
  return !event->recorded || event->recorded->has_passed() ? cudaSuccess : result(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  MomentPointer moment;
  {
    const std::lock_guard lock(event->mutex);
    moment = event->recorded;
  }
  if (moment) moment->wait();
  return result(obstacle("cudaEventSynchronize"));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->recorded || !end->recorded) return result(cudaErrorInvalidResourceHandle);
  if (!begin->recorded->has_passed() || !end->recorded->has_passed()) return result(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->recorded->at() - begin->recorded->at()).count();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return copy("cudaMemcpyAsync", source, target, stream, [=] { std::memcpy(target, source, bytes); });
}
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  const cudaError_t error = enqueue("cudaMemcpy", nullptr, [=] { std::memcpy(target, source, bytes); });
  if (error == cudaSuccess) queue_of(nullptr)->wait_until_idle();
  return error;
}
cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > target_pitch || width > source_pitch) return result(cudaErrorInvalidPitchValue);
  return copy("cudaMemcpy2DAsync", source, target, stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(target) + row * target_pitch,
                  static_cast<const char*>(source) + row * source_pitch, width);
    }
  });
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  return enqueue("cudaMemsetAsync", stream, [=] { std::memset(target, value, bytes); });
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  return enqueue("cudaMemset", nullptr, [=] { std::memset(target, value, bytes); });
}

/// CUDA has one thread for the host functions of a process; they must not call CUDA.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  static const QueuePointer* const functions = [] {
    auto* const queue = new QueuePointer(std::make_shared<Queue>(-1));
    (*queue)->start();
    return queue;
  }();
  return enqueue("cudaLaunchHostFunc", stream, [function, data] {
    const auto done = std::make_shared<Moment>();
    (*functions)->push([=] {
      is_in_host_function = true;
      function(data);
      done->pass();
    });
    done->wait();
  });
}

}  // extern "C"
