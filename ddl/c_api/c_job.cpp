#include "ddl/c_api/c_job.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>

#include "ddl/log.hpp"

namespace ddl::c_api {
namespace {

thread_local std::string last_message;

constexpr int types = 7;
constexpr int ops = 5;

/// Runs at exit. Peers may be waiting for this rank's ddl_finalize.
void tell_of_missing_finalize() {
  Job& job = Job::of_process();
  if (job.has_started())
    job.context().log().error("the program ends without ddl_finalize: call it on all ranks");
}

}  // namespace

Job& Job::of_process() {
  static Job* const own = new Job;
  return *own;
}

void Job::start(const char* options, const void* communicator) {
  if (context_ || has_ended_) {
    throw Error(ErrorCode::invalid_argument,
                has_ended_ ? "the job has ended (ddl_finalize); a process can join one only once"
                           : "the job has begun; found a second call, expected one");
  }
  options_ = options == nullptr ? "" : options;
  const ContextOptions given = ContextOptions::from_environment(options_, "options");
  context_.emplace(communicator == nullptr ? Context::from_environment(given)
                                           : Context::from_mpi(communicator, given));
  std::atexit(tell_of_missing_finalize);
}

Context& Job::context() {
  if (!context_) throw NoJob();
  return *context_;
}

DeviceCommunicator& Job::device() const {
  if (!device_) refuse("the job uses no device; call ddl_device_init on all ranks first");
  return *device_;
}

void Job::end() {
  if (!context_) throw NoJob();
  root_work.reset();
  handles_.clear();  // reducers wait for reductions in flight
  device_.reset();
  memory_.clear();
  context_.reset();
  has_ended_ = true;
}

void* Job::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > SIZE_MAX - alignment)
    throw Error(ErrorCode::invalid_argument, fmt::format("{} bytes are too many", bytes));
  std::size_t room = bytes + alignment;
  SharedBuffer<std::byte> buffer = allocate_bytes(context(), room);
  void* memory = buffer.data();
  std::align(alignment, bytes, memory, room);
  memory_.emplace(memory, std::move(buffer));
  return memory;
}

bool Job::release(void* memory) { return memory_.erase(memory) != 0; }

void Job::destroy(const void* handle) {
  if (handle != nullptr && handles_.erase(handle) == 0) require_handle(handle);
}

void Job::require_handle(const void* handle) const {
  if (handle == nullptr) refuse("the handle is null");
  if (!handles_.contains(handle)) refuse("the handle is none of this job's, or has been freed");
}

void refuse(const std::string& text) { throw Error(ErrorCode::invalid_argument, text); }

DataType type_of(int type) {
  if (type < 0 || type >= types) {
    refuse(fmt::format("type: found {}, expected DDL_U8 (0) to DDL_BF16 ({})", type, types - 1));
  }
  return static_cast<DataType>(type);
}

ReduceOp op_of(int op) {
  if (op < 0 || op >= ops)
    refuse(fmt::format("op: found {}, expected DDL_SUM (0) to DDL_PROD ({})", op, ops - 1));
  return static_cast<ReduceOp>(op);
}

std::size_t count_of(std::int64_t count) {
  if (count < 0) refuse(fmt::format("count: found {}, expected 0 or more", count));
  return static_cast<std::size_t>(count);
}

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) refuse(fmt::format("{} is null", what));
}

int failed(const char* function, const std::exception& error) noexcept {
  // The C error codes are those of ErrorCode plus 1.
  static_assert(DDL_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument) + 1 &&
                DDL_INTERNAL == static_cast<int>(ErrorCode::internal) + 1);
  try {
    last_message = fmt::format("{}: {}", function, error.what());
  } catch (const std::exception&) {
    last_message.clear();
  }
  if (dynamic_cast<const NoJob*>(&error) != nullptr) return DDL_NOT_INITIALIZED;
  const auto* const own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? static_cast<int>(own->code()) + 1 : DDL_INTERNAL;
}

}  // namespace ddl::c_api

const char* ddl_error_message(void) { return ddl::c_api::last_message.c_str(); }
