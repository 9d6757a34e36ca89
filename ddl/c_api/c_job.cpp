#include "ddl/c_api/c_job.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <memory>

namespace ddl::c_api {
namespace {

thread_local std::string last_message;

}  // namespace

Job& Job::of_process() {
  static Job* const own = new Job;
  return *own;
}

void Job::start(const char* options) {
  if (context_ || has_ended_) {
    throw Error(ErrorCode::invalid_argument,
                has_ended_ ? "the job has ended (ddl_finalize); a process can join one only once"
                           : "the job has begun; found a second call, expected one");
  }
  options_ = options == nullptr ? "" : options;
  context_.emplace(Context::from_environment(ContextOptions::from_environment(options_, "options")));
}

Context& Job::context() {
  if (!context_) throw NoJob();
  return *context_;
}

void Job::end() {
  if (!context_) throw NoJob();
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

int failed(const char* function, const std::exception& error) noexcept {
  // The C names are those of the enumeration, in its order, from 1 on.
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
