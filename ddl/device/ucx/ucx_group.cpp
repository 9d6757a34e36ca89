#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/kernels.hpp"
#include "collectives/system/descriptors.hpp"
#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/device/exchange/exchange_group.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/device/ucx/network_calls.hpp"
#include "topology/refuse.hpp"

namespace ddl::device {
namespace {

/// Whether GPUDirect RDMA writes need a flush before a kernel that is already running may read them: a
/// network adapter's write can still be in flight when the host sees its completion.
bool needs_flush_of_writes(int device) {
  int ordering = 0;
  int flush = 0;
  check_cuda(cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&flush, cudaDevAttrGPUDirectRDMAFlushWritesOptions, device),
             "cudaDeviceGetAttribute");
  return ordering < cudaGPUDirectRDMAWritesOrderingOwner &&
         (flush & cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
}

/// Sends device memory to the next rank and checks what arrives, because UCX may claim support that the
/// driver or a network adapter lacks.
void greet_on_devices(const Context& context, collectives::UcxNetwork& network) {
  constexpr std::size_t bytes = std::size_t{512} << 10;  // large enough for UCX's rendezvous protocol
  const int ranks = context.size();
  const auto mark = [](int rank) { return static_cast<std::uint8_t>(rank % 251 + 1); };
  const std::vector<std::uint8_t> sent(bytes, mark(context.rank()));
  const std::vector<std::uint8_t> expected(bytes, mark((context.rank() + ranks - 1) % ranks));
  std::vector<std::uint8_t> found(bytes);
  const DeviceBytes memory = allocate_on_device(2 * bytes, "UCX");
  std::byte* const answer = memory.get() + bytes;
  upload(memory.get(), sent.data(), bytes);
  try {
    greet_next(network, ContextBootstrap(context), {memory.get(), bytes}, {answer, bytes});
  } catch (const Error& error) {
    fail_with(ErrorCode::unsupported, "between devices' memory, {}", error.what());
  }
  check_cuda(cudaMemcpy(found.data(), answer, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (found == expected) return;
  fail_with(ErrorCode::unsupported, "{} delivered other data than the memory of another rank's device held",
            network.name());
}

/// Opens and connects a UCX network beside the context's own, and checks that it transfers device memory
/// between ranks. Collective.
std::unique_ptr<collectives::UcxNetwork> open_device_network(const Context& context) {
  ContextBootstrap gathering(context);
  std::string reason;
  auto network = collectives::open_ucx(gathering, reason);
  if (!network) throw Error(ErrorCode::unsupported, "UCX cannot be used: " + reason).as_agreed();
  context.on_all_ranks("UCX on devices", [&] {
    if (carries_device_memory(*network)) return;
    throw Error(
        ErrorCode::unsupported,
        "UCX does not know the memory of devices: it was built without CUDA, or does not find its part "
        "for CUDA (package ucx-cuda), or UCX_TLS leaves it out");
  });
  context.on_all_ranks("UCX on devices", [&] { greet_on_devices(context, *network); });
  return network;
}

/// Collectives through a CUDA-aware UCX worker of the group's own: UCX sends and receives device memory (over
/// GPUDirect RDMA where the fabric has it), and kernels reduce it. Programs are lowered from plans as in the
/// host engine.
///
/// A thread runs the calls in order; each starts when its stream has reached it. There the stream is blocked
/// by a hold, a kernel of one thread that polls a flag in host memory. CUDA runs all host functions of a
/// process on one thread, so a host function would block other ranks in the process and UCX's own callbacks;
/// a hold does not. A hold ends by itself at the deadline if the group's thread makes no progress. The thread
/// queues its work on a stream of the highest priority: streams of the same priority may share a hardware
/// queue, and the work that a hold waits for must not be queued behind work that waits for the hold.
class UcxGroup final : public DimensionGroup {
 public:
  /// See open_ucx_group.
  UcxGroup(GroupMembers& members, const DeviceTable& devices, std::size_t staging_bytes)
      : members_(members),
        device_(devices.of(members.context().rank()).number),
        network_(open_device_network(members.context())) {
    members.context().on_all_ranks("UCX on devices", [&] {
      take_blocks();
      gate_ = make_pinned<collectives::device::Gate>();
      reached_.allocate();
      flushes_writes_ = needs_flush_of_writes(device_);
      check_cuda(collectives::device::load_network_kernels(), "cudaFuncGetAttributes");
      bell_ = collectives::new_event();
      calls_.emplace(members, *network_, *gate_, staging_bytes);
    });
    thread_ = std::thread([this] { work(); });
  }

  ~UcxGroup() override { close(false); }

  void run(const DeviceCall& call) override {
    reached_.write(++called_, call.stream);
    const auto timeout_ns = static_cast<std::uint64_t>(members_.deadline().count());
    collectives::device::launch_hold(gate_.get(), called_, timeout_ns, call.stream);
    push([this, call, number = called_] {
      calls_->executor().await(reached_, number);
      calls_->run(call);
      release();
    });
  }

  [[nodiscard]] std::uint64_t completed() override { return completed_; }
  [[nodiscard]] std::optional<GroupFailure> failure() override {
    if (const auto found = DimensionGroup::failure()) return found;
    if (__atomic_load_n(&gate_->expired, __ATOMIC_ACQUIRE) == 0) return {};
    return GroupFailure{
        {ErrorCode::timeout,
         fmt::format("the thread that sends and receives for this rank's device has stood still for {:g} s "
                     "inside of UCX or CUDA",
                     members_.deadline_seconds())},
        completed_ + 1};
  }

  void abort() noexcept override {
    calls_->executor().end();
    collectives::signal_event(bell_.get());
  }

  /// Meets the other ranks, which finds calls that differ.
  void settle() override {
    push([this] {
      calls_->conclude();
      is_concluded_ = true;
    });
    while (!is_concluded_ && !failure() && !calls_->executor().has_ended()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void close(bool in_order) noexcept override {
    if (!thread_.joinable()) return;
    is_closing_ = true;
    in_order ? push([this] { is_closed_ = true; }) : abort();
    thread_.join();
    if (!in_order) {  // kernels may still access them
      gate_.release();
      reached_.abandon();
    }
    network_.reset();
  }

 private:
  /// Takes one block for a hold and one for a kernel that the hold waits for.
  void take_blocks() {
    constexpr std::int64_t blocks = 2;
    const std::int64_t room = ExchangeGroup::room_on_device() / 2;
    if (budget_.take(device_, blocks, room)) return;
    fail_with(ErrorCode::unsupported,
              "UCX cannot be used: CUDA device {} has room for {} blocks of kernels that wait for it, "
              "and {} are taken; put fewer ranks of a process on a device",
              device_, room, budget_.taken(device_));
  }

  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    collectives::signal_event(bell_.get());
  }

  void work() noexcept {
    try {
      check_cuda(cudaSetDevice(device_), "cudaSetDevice");
      allow_captures_of_others();
      work_off();
      return;
    } catch (const NetworkExecutor::Ended&) {
    } catch (...) {
      fail(as_error(std::current_exception()));
      // Peers hear of the failure before their connections break.
      while (!calls_->executor().has_ended() && !is_closing_)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Opens the gate only after the network and the stream have stopped accessing the callers' buffers.
    network_->abandon();
    cudaStreamSynchronize(calls_->executor().stream());
    __atomic_store_n(&gate_->opened, 1U, __ATOMIC_RELEASE);
  }

  void work_off() {
    while (!is_closed_) {
      if (calls_->executor().has_ended()) throw NetworkExecutor::Ended();
      std::unique_lock lock(mutex_);
      if (tasks_.empty()) {
        lock.unlock();
        sleep_until_called();
        continue;
      }
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  /// Sleeps until a task or a network event arrives, such as room for data of this rank that peers wait for.
  void sleep_until_called() {
    if (network_->progress()) return;
    if (!network_->arm()) return;
    pollfd readable[] = {{network_->event_descriptor(), POLLIN, 0}, {bell_.get(), POLLIN, 0}};
    constexpr int milliseconds = 1000;
    poll(readable, 2, milliseconds);
    collectives::clear_event(bell_.get());
  }

  void release() {
    if (flushes_writes_) {
      check_cuda(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                    cudaFlushGPUDirectRDMAWritesToOwner),
                 "cudaDeviceFlushGPUDirectRDMAWrites");
    }
    __atomic_store_n(&gate_->released, ++completed_, __ATOMIC_RELEASE);
  }

  GroupMembers& members_;
  const int device_;
  std::unique_ptr<collectives::UcxNetwork> network_;
  BlockBudget budget_{BlockBudget::Half::holds};
  Pinned<collectives::device::Gate> gate_;
  StreamMark reached_;           // calls that their streams have reached
  bool flushes_writes_ = false;  // see needs_flush_of_writes
  std::optional<NetworkCalls> calls_;
  collectives::FileDescriptor bell_;

  std::uint64_t called_ = 0;
  std::atomic<std::uint64_t> completed_ = 0;
  std::atomic<bool> is_concluded_ = false, is_closing_ = false;
  bool is_closed_ = false;  // only used by the thread
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;  // for the thread
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DimensionGroup> open_ucx_group(GroupMembers& members, const DeviceTable& devices,
                                               std::size_t staging_bytes) {
  return std::make_unique<UcxGroup>(members, devices, staging_bytes);
}

}  // namespace ddl::device
