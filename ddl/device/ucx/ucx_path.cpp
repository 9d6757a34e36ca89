#include "ddl/device/ucx/ucx_path.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/device/network_kernels.hpp"
#include "collectives/network/open_ucx.hpp"
#include "ddl/agreement.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device/call_fingerprint.hpp"
#include "ddl/device/ucx/device_memory.hpp"

namespace ddl::device {
namespace {

using topology::Collective;

constexpr std::size_t least_staging = std::size_t{64} << 10;
/// Of programs, after which all ranks meet: numbers in tags are used again, and a root must not be further
/// ahead than they tell.
constexpr std::uint64_t rounds_between_meetings = 32;

/// For a network beside the context's own.
class GatheringContext final : public collectives::Bootstrap {
 public:
  explicit GatheringContext(Context& context) : context_(context) {}
  [[nodiscard]] int rank() const noexcept override { return context_.rank(); }
  [[nodiscard]] int size() const noexcept override { return context_.size(); }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    return gather_texts(context_, bytes);
  }
  void abort(int) noexcept override {}

 private:
  Context& context_;
};

template <typename Pointer>
Pointer moved_back(Pointer data, std::size_t bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(data) - bytes);
}

std::byte* allocate_on_device(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
  return static_cast<std::byte*>(memory);
}

/// What an adapter has written to the device's memory may be on its way still when a kernel that has been
/// waiting goes on, though the host has been told of it.
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

}  // namespace

UcxPath::UcxPath(Context& context, const DeviceTable& devices, std::size_t staging_bytes)
    : context_(context),
      rank_(context.rank()),
      ranks_(context.size()),
      device_(devices.of(context.rank()).number) {
  open_network();
  context.on_all_ranks("UCX on devices", [&] {
    const std::size_t least = std::max(least_staging, static_cast<std::size_t>(ranks_) * 1024);
    if (staging_bytes < least) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("DeviceOptions::staging_bytes: found {}, expected {} or more", staging_bytes, least));
    }
    allocate(staging_bytes);
  });
  greet_on_devices();
  context.on_all_ranks("UCX on devices", [&] {
    turns_.emplace(*network_, *gate_.host());
    executor_.emplace(*network_, *turns_, rank_, ranks_,
                      NetworkExecutor::Memory{scratch_.get(), staging_bytes, receiving_.get()},
                      context.options().deadline);
    recipes_.emplace(context, staging_bytes, NetworkExecutor::block_bytes);
  });
  thread_ = std::thread([this] { work(); });
}

void UcxPath::open_network() {
  GatheringContext gathering(context_);
  std::string reason;
  network_ = collectives::open_ucx(gathering, reason);
  if (!network_) throw Error(ErrorCode::unsupported, "UCX cannot be used: " + reason).as_agreed();
  context_.on_all_ranks("UCX on devices", [&] {
    if (carries_device_memory(*network_)) return;
    throw Error(
        ErrorCode::unsupported,
        "UCX does not know the memory of devices: it was built without CUDA, or does not find its part "
        "for CUDA (package ucx-cuda), or UCX_TLS leaves it out");
  });
}

void UcxPath::allocate(std::size_t staging_bytes) {
  work_memory_.reset(allocate_on_device(staging_bytes));
  scratch_.reset(allocate_on_device(staging_bytes));
  receiving_.reset(allocate_on_device(NetworkExecutor::blocks * NetworkExecutor::block_bytes));
  gate_.allocate();
  flushes_writes_ = needs_flush_of_writes(device_);
  check_cuda(collectives::device::load_network_kernels(), "cudaFuncGetAttributes");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  bell_ = collectives::FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell_.valid()) throw Error(ErrorCode::internal, "eventfd failed");
}

/// What UCX says of itself is not all: the driver, or an adapter, may not play along.
void UcxPath::greet_on_devices() {
  context_.on_all_ranks("UCX on devices", [&] {
    constexpr std::size_t bytes = NetworkExecutor::block_bytes;
    const GatheringContext gathering(context_);
    const auto mark = [](int rank) { return static_cast<std::uint8_t>(rank % 251 + 1); };
    const auto filled = std::vector<std::uint8_t>(bytes, mark(rank_));
    const auto expected = std::vector<std::uint8_t>(bytes, mark((rank_ + ranks_ - 1) % ranks_));
    std::vector<std::uint8_t> found(bytes);
    check_cuda(cudaMemcpy(receiving_.get(), filled.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    try {
      greet_next(*network_, gathering, {receiving_.get(), bytes}, {receiving_.get() + bytes, bytes});
    } catch (const Error& error) {
      throw Error(ErrorCode::unsupported, fmt::format("between devices' memory, {}", error.what()));
    }
    check_cuda(cudaMemcpy(found.data(), receiving_.get() + bytes, bytes, cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    if (found == expected) return;
    throw Error(ErrorCode::unsupported, fmt::format("{} brings something else than what was in the memory of "
                                                    "another rank's device",
                                                    network_->name()));
  });
}

UcxPath::~UcxPath() { close(false); }

// The caller's side.

Event UcxPath::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      Event event = std::move(unused_.back());
      unused_.pop_back();
      return event;
    }
  }
  return make_event();
}

void UcxPath::run(const DeviceCall& call) {
  Event reached = take_event();
  check_cuda(cudaEventRecord(reached.get(), call.stream), "cudaEventRecord");
  const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(context_.options().deadline);
  check_cuda(collectives::device::launch_hold(gate_.device(), static_cast<std::uint32_t>(++calls_),
                                              static_cast<std::uint64_t>(deadline.count()), call.stream),
             "launch of a hold");
  push({call, std::move(reached)});
}

void UcxPath::push(Queued queued) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(queued));
  }
  ring();
}

void UcxPath::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(bell_.get(), &one, sizeof one);
}

std::optional<PathFailure> UcxPath::failure() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_;
  }
  if (__atomic_load_n(&gate_.host()->expired, __ATOMIC_ACQUIRE) == 0) return {};
  return PathFailure{
      {ErrorCode::timeout,
       fmt::format("the thread that sends and receives for this rank's device has stood still for {:g} s "
                   "inside of UCX or CUDA",
                   std::chrono::duration<double>(context_.options().deadline).count())},
      completed_ + 1};
}

void UcxPath::abort() noexcept {
  turns_->end();
  ring();
}

/// What ranks have called differently shows up when they meet.
void UcxPath::settle() {
  const std::uint64_t wanted = meetings_ + 1;
  push({std::nullopt, nullptr});
  while (meetings_ < wanted && !failure() && !turns_->has_ended()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void UcxPath::close(bool in_order) noexcept {
  if (!thread_.joinable()) return;
  if (in_order) {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    ring();
  } else {
    abort();
  }
  thread_.join();
  if (!in_order) gate_.abandon();  // a kernel may still look at it
  network_.reset();
}

// The thread's side.

void UcxPath::work() noexcept {
  try {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    work_off();
    return;
  } catch (const Turns::Ended&) {
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::internal, error.what()));
  }
  // Nothing touches the streams' memory any more when they go on.
  network_->abandon();
  cudaStreamSynchronize(executor_->stream());
  __atomic_store_n(&gate_.host()->opened, 1U, __ATOMIC_RELEASE);
}

void UcxPath::fail(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  failure_ = PathFailure{error, completed_ + 1};
}

void UcxPath::work_off() {
  while (std::optional<Queued> queued = next()) {
    if (!queued->call) {
      constexpr std::uint64_t all_is_called = 1;
      history_.add(all_is_called);
      meet();
      ++meetings_;
      continue;
    }
    await(queued->reached);
    do_call(*queued->call);
    release();
    const std::lock_guard lock(mutex_);
    unused_.push_back(std::move(queued->reached));
  }
}

/// None: the path is closed.
std::optional<UcxPath::Queued> UcxPath::next() {
  for (;;) {
    if (turns_->has_ended()) throw Turns::Ended();
    {
      const std::lock_guard lock(mutex_);
      if (!queue_.empty()) {
        Queued queued = std::move(queue_.front());
        queue_.pop_front();
        return queued;
      }
      if (is_closing_) return std::nullopt;
    }
    sleep_until_called();
  }
}

/// Others may still need what this rank has sent, or ask for it.
void UcxPath::sleep_until_called() {
  if (network_->progress()) return;
  if (network_->may_hold_back()) network_->flush();
  if (!network_->arm()) return;
  pollfd readable[] = {{network_->event_descriptor(), POLLIN, 0}, {bell_.get(), POLLIN, 0}};
  constexpr int milliseconds = 1000;
  poll(readable, 2, milliseconds);
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto heard = read(bell_.get(), &rings, sizeof rings);
}

void UcxPath::await(const Event& reached) {
  turns_->begin();
  for (;;) {
    const cudaError_t result = cudaEventQuery(reached.get());
    if (result == cudaSuccess) return;
    cudaGetLastError();  // it must not be blamed on the next launch
    if (result != cudaErrorNotReady) check_cuda(result, "cudaEventQuery");
    turns_->take(false, Turns::Awaited::device);
  }
}

void UcxPath::release() {
  if (flushes_writes_) {
    check_cuda(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                  cudaFlushGPUDirectRDMAWritesToOwner),
               "cudaDeviceFlushGPUDirectRDMAWrites");
  }
  const std::uint64_t call = ++completed_;
  __atomic_store_n(&gate_.host()->released, static_cast<std::uint32_t>(call), __ATOMIC_RELEASE);
}

/// Messages tell all that has been called so far: what differs is noticed even where nobody waited for it.
collectives::MessageTag UcxPath::next_round() {
  return {.call = static_cast<std::uint16_t>(++rounds_),
          .fingerprint = static_cast<std::uint32_t>(history_.value())};
}

void UcxPath::meet() {
  const NetworkExecutor::Buffers buffers{work_memory_.get(), work_memory_.get()};
  executor_->run({recipes_->meeting(), buffers, DataType::u8, ReduceOp::sum, next_round()});
}

void UcxPath::do_call(const DeviceCall& call) {
  history_.add(fingerprint_of(call));
  if (call.collective == Collective::barrier) return meet();
  if (ranks_ == 1) return copy_alone(call);
  const Recipe& recipe = recipes_->of(call);
  history_.add(recipe.plan);
  for (std::size_t first = 0; first < call.count; first += recipe.at_once) {
    const std::size_t elements = std::min(recipe.at_once, call.count - first);
    const bool is_rest = elements < recipe.at_once;
    do_part(call, {first, elements, is_rest ? *recipe.last : *recipe.part});
  }
}

void UcxPath::copy_alone(const DeviceCall& call) {
  check_cuda(cudaMemcpyAsync(call.output, call.input, call.count * size_of(call.type),
                             cudaMemcpyDeviceToDevice, executor_->stream()),
             "cudaMemcpyAsync");
  executor_->wait_for_stream();
}

void UcxPath::do_part(const DeviceCall& call, const Part& part) {
  if ((rounds_ + 1) % rounds_between_meetings == 0) meet();
  const std::size_t offset = part.first * size_of(call.type);
  NetworkExecutor::Buffers buffers{call.input + offset, call.output + offset};
  switch (call.collective) {
    case Collective::reduce_scatter:
      return reduce_scatter_part(call, part);
    case Collective::all_gather:  // never in parts
      buffers.input =
          moved_back(call.input, static_cast<std::size_t>(rank_) * call.count * size_of(call.type));
      break;
    case Collective::broadcast:
      if (rank_ != call.root) buffers.input = buffers.target;
      break;
    case Collective::reduce:
      if (rank_ != call.root) buffers.target = work_memory_.get();
      break;
    default:
      break;
  }
  run_program(call, part, buffers);
}

/// Its partial results take as much memory as its input, which is not theirs.
void UcxPath::reduce_scatter_part(const DeviceCall& call, const Part& part) {
  const std::size_t element = size_of(call.type);
  const std::size_t bytes = part.elements * element;
  std::byte* const work = work_memory_.get();
  check_cuda(
      cudaMemcpy2DAsync(work, bytes, call.input + part.first * element, call.count * element, bytes,
                        static_cast<std::size_t>(ranks_), cudaMemcpyDeviceToDevice, executor_->stream()),
      "cudaMemcpy2DAsync");
  executor_->wait_for_stream();
  run_program(call, part, {work, work});
  check_cuda(
      cudaMemcpyAsync(call.output + part.first * element, work + static_cast<std::size_t>(rank_) * bytes,
                      bytes, cudaMemcpyDeviceToDevice, executor_->stream()),
      "cudaMemcpyAsync");
  executor_->wait_for_stream();
}

void UcxPath::run_program(const DeviceCall& call, const Part& part, const NetworkExecutor::Buffers& buffers) {
  NetworkExecutor::Buffers from = buffers;
  if (part.program.reads_mixtures() && buffers.input != buffers.target) {
    check_cuda(cudaMemcpyAsync(buffers.target, buffers.input, part.program.count() * size_of(call.type),
                               cudaMemcpyDeviceToDevice, executor_->stream()),
               "cudaMemcpyAsync");
    executor_->wait_for_stream();
    from.input = buffers.target;
  }
  executor_->run({part.program, from, call.type, call.op, next_round()});
  if (from.input != from.target) copy_unwritten(call, part, from);
}

/// What the output has of this rank's input as it is.
void UcxPath::copy_unwritten(const DeviceCall& call, const Part& part,
                             const NetworkExecutor::Buffers& buffers) {
  if (call.collective == Collective::reduce && rank_ != call.root) return;
  const std::size_t element = size_of(call.type);
  bool waits = false;
  for (const auto& range : part.program.unwritten()) {
    check_cuda(
        cudaMemcpyAsync(buffers.target + range.begin * element, buffers.input + range.begin * element,
                        (range.end - range.begin) * element, cudaMemcpyDeviceToDevice, executor_->stream()),
        "cudaMemcpyAsync");
    waits = true;
  }
  if (waits) executor_->wait_for_stream();
}

}  // namespace ddl::device
