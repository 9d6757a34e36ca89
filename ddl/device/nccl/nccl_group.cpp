#include "ddl/device/nccl/nccl_group.hpp"

#include <fmt/format.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "ddl/cuda_check.hpp"
#include "ddl/error.hpp"

namespace ddl::device {
namespace {

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::u8:
      return ncclUint8;
    case DataType::i32:
      return ncclInt32;
    case DataType::i64:
      return ncclInt64;
    case DataType::f32:
      return ncclFloat32;
    case DataType::f64:
      return ncclFloat64;
    case DataType::f16:
      return ncclFloat16;
    case DataType::bf16:
      return ncclBfloat16;
  }
  throw Error(ErrorCode::internal, "a type that NCCL does not have");
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::avg:
      return ncclAvg;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::prod:
      return ncclProd;
  }
  throw Error(ErrorCode::internal, "an operation that NCCL does not have");
}

}  // namespace

ncclUniqueId NcclGroup::draw_id() {
  const NcclLibrary& nccl = NcclLibrary::get();
  ncclUniqueId id{};
  if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess) {
    throw Error(ErrorCode::internal,
                fmt::format("ncclGetUniqueId failed: {}", nccl.text_of(result, nullptr)));
  }
  return id;
}

NcclGroup::NcclGroup(std::string name, const Communicator& members, const ncclUniqueId& id,
                     std::chrono::nanoseconds deadline)
    : nccl_(NcclLibrary::get()),
      name_(std::move(name)),
      rank_(members.rank()),
      size_(members.size()),
      deadline_(deadline),
      communicator_(set_up(id)) {}

/// Collectives of a communicator that does not block take a thread each, so this one blocks.
ncclComm_t NcclGroup::set_up(const ncclUniqueId& id) const {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const auto made = std::make_shared<ncclComm_t>(nullptr);
  const ncclResult_t result = within_deadline("ncclCommInitRankConfig", [=, own = this->rank_, size = size_] {
    cudaSetDevice(device);
    ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
    return NcclLibrary::get().init(made.get(), size, id, own, &configuration);
  });
  if (result != ncclSuccess) {
    throw Error(ErrorCode::internal,
                fmt::format("ncclCommInitRankConfig of {} failed on its rank {} of {}: {}", name_, rank_,
                            size_, nccl_.text_of(result, nullptr)));
  }
  return *made;
}

NcclGroup::~NcclGroup() {
  if (communicator_ == nullptr || is_aborted_) return;
  try {
    const ncclResult_t result = within_deadline("ncclCommDestroy", [communicator = communicator_] {
      const NcclLibrary& nccl = NcclLibrary::get();
      const ncclResult_t finalized = nccl.finalize(communicator);
      return finalized == ncclSuccess ? nccl.destroy(communicator) : finalized;
    });
    if (result != ncclSuccess) abort();
  } catch (const Error&) {
    // The thread that waits in it goes on to use it.
  }
}

Error NcclGroup::error_of(ncclResult_t result, const char* function) const {
  const ErrorCode code = result == ncclRemoteError ? ErrorCode::peer_failed : ErrorCode::internal;
  return {code, fmt::format("{} of {} failed on its rank {} of {}: {}", function, name_, rank_, size_,
                            nccl_.text_of(result, communicator_))};
}

/// What waits for other ranks without end: on a thread that is left behind at the deadline.
ncclResult_t NcclGroup::within_deadline(const char* name, std::function<ncclResult_t()> function) const {
  auto task = std::make_shared<std::packaged_task<ncclResult_t()>>(std::move(function));
  std::future<ncclResult_t> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_for(deadline_) == std::future_status::ready) return result.get();
  throw Error(ErrorCode::timeout,
              fmt::format("{} of {}: waited {:g} s on its rank {} of {}; some rank has not come to it", name,
                          name_, std::chrono::duration<double>(deadline_).count(), rank_, size_));
}

template <typename Function>
void NcclGroup::call(const char* name, const Function& function) {
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_) throw Error(ErrorCode::peer_failed, fmt::format("{} of {}: it was ended", name, name_));
    is_in_call_ = true;
  }
  const ncclResult_t result = function();
  leave_call();
  if (result != ncclSuccess) throw error_of(result, name);
}

/// What was aborted meanwhile is given back by who was using it.
void NcclGroup::leave_call() noexcept {
  const std::lock_guard lock(mutex_);
  is_in_call_ = false;
  if (is_aborted_) abort_communicator();
}

void NcclGroup::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                           cudaStream_t stream) {
  call("ncclAllReduce", [&] {
    return nccl_.all_reduce(input, output, count, nccl_type(type), nccl_op(op), communicator_, stream);
  });
}

void NcclGroup::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                               cudaStream_t stream) {
  call("ncclReduceScatter", [&] {
    return nccl_.reduce_scatter(input, output, count, nccl_type(type), nccl_op(op), communicator_, stream);
  });
}

void NcclGroup::all_gather(const void* input, void* output, std::size_t count, DataType type,
                           cudaStream_t stream) {
  call("ncclAllGather",
       [&] { return nccl_.all_gather(input, output, count, nccl_type(type), communicator_, stream); });
}

void NcclGroup::broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                          cudaStream_t stream) {
  call("ncclBroadcast",
       [&] { return nccl_.broadcast(input, output, count, nccl_type(type), root, communicator_, stream); });
}

void NcclGroup::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                       int root, cudaStream_t stream) {
  call("ncclReduce", [&] {
    return nccl_.reduce(input, output, count, nccl_type(type), nccl_op(op), root, communicator_, stream);
  });
}

std::optional<Error> NcclGroup::failure() const {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return {};
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.async_error(communicator_, &state);
  if (asked != ncclSuccess) return error_of(asked, "ncclCommGetAsyncError");
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return error_of(state, "a collective");
}

/// ncclCommAbort ends the kernels and frees what a call would go on to use: while one is under way, the
/// communicator is revoked, where NCCL can do that, and the call's thread aborts it.
void NcclGroup::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_aborted_, true)) return;
  if (is_in_call_ && nccl_.revoke != nullptr) {
    nccl_.revoke(communicator_, 0);
  } else {
    abort_communicator();
  }
}

void NcclGroup::abort_communicator() noexcept {
  if (communicator_ != nullptr) nccl_.abort(std::exchange(communicator_, nullptr));
}

}  // namespace ddl::device
