#include "ddl/device/nccl/nccl_group.hpp"

#include <fmt/format.h>

#include <span>
#include <thread>
#include <utility>

#include "ddl/error.hpp"

namespace ddl::device {
namespace {

using Clock = std::chrono::steady_clock;

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
      deadline_(deadline) {
  ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
  configuration.blocking = 0;  // so that a rank that does not come is noticed
  call("ncclCommInitRankConfig",
       [&] { return nccl_.init(&communicator_, size_, id, rank_, &configuration); });
}

NcclGroup::~NcclGroup() {
  if (communicator_ == nullptr || is_aborted_) return;
  try {
    call("ncclCommFinalize", [&] { return nccl_.finalize(communicator_); });
    nccl_.destroy(communicator_);
  } catch (const Error&) {
    abort();
  }
}

Error NcclGroup::error_of(ncclResult_t result, const char* function) const {
  const ErrorCode code = result == ncclRemoteError ? ErrorCode::peer_failed : ErrorCode::internal;
  return {code, fmt::format("{} of {} failed on its rank {} of {}: {}", function, name_, rank_, size_,
                            nccl_.text_of(result, communicator_))};
}

template <typename Function>
void NcclGroup::call(const char* name, const Function& function) {
  const Clock::time_point until = Clock::now() + deadline_;
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_) throw Error(ErrorCode::peer_failed, fmt::format("{} of {}: it was ended", name, name_));
    result = function();
  }
  for (int looks = 0; result == ncclInProgress; ++looks) {
    if (Clock::now() > until) {
      abort();
      throw Error(ErrorCode::timeout,
                  fmt::format("{} of {}: waited {:g} s on its rank {} of {}; some rank has not come to it",
                              name, name_, std::chrono::duration<double>(deadline_).count(), rank_, size_));
    }
    if (looks > 100) std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard lock(mutex_);
    if (is_aborted_) throw Error(ErrorCode::peer_failed, fmt::format("{} of {}: it was ended", name, name_));
    if (const ncclResult_t asked = nccl_.async_error(communicator_, &result); asked != ncclSuccess)
      result = asked;
  }
  if (result != ncclSuccess) throw error_of(result, name);
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

void NcclGroup::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (communicator_ != nullptr && !std::exchange(is_aborted_, true)) nccl_.abort(communicator_);
}

}  // namespace ddl::device
