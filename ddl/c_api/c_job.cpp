#include "ddl/c_api/c_job.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "ddl/error.hpp"

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

void Job::end() {
  memory_.clear();
  context_.reset();
  has_ended_ = true;
}

void* Job::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > SIZE_MAX - alignment)
    throw Error(ErrorCode::invalid_argument, fmt::format("{} bytes are too many", bytes));
  std::size_t room = bytes + alignment;
  SharedBuffer<std::byte> buffer = allocate_bytes(*context_, room);
  void* memory = buffer.data();
  std::align(alignment, bytes, memory, room);
  memory_.emplace(memory, std::move(buffer));
  return memory;
}

bool Job::release(void* memory) { return memory_.erase(memory) != 0; }

int failed(int error, const std::string& message) noexcept {
  try {
    last_message = message;
  } catch (const std::exception&) {
    last_message.clear();
  }
  return error;
}

int failed(const char* function, const std::exception& error) noexcept {
  int code = DDL_INTERNAL;
  if (const auto* const own = dynamic_cast<const Error*>(&error)) {
    switch (own->code()) {
      case ErrorCode::invalid_argument:
        code = DDL_INVALID_ARGUMENT;
        break;
      case ErrorCode::mismatch:
        code = DDL_MISMATCH;
        break;
      case ErrorCode::timeout:
        code = DDL_TIMEOUT;
        break;
      case ErrorCode::peer_failed:
        code = DDL_PEER_FAILED;
        break;
      case ErrorCode::transport:
        code = DDL_TRANSPORT;
        break;
      case ErrorCode::io:
        code = DDL_IO;
        break;
      case ErrorCode::corrupt_data:
        code = DDL_CORRUPT_DATA;
        break;
      case ErrorCode::unsupported:
        code = DDL_UNSUPPORTED;
        break;
      case ErrorCode::internal:
        break;
    }
  }
  return failed(code, std::string(function) + ": " + error.what());
}

int not_initialized(const char* function) noexcept {
  return failed(DDL_NOT_INITIALIZED,
                std::string(function) + ": there is no job: call it between ddl_init and ddl_finalize");
}

}  // namespace ddl::c_api

const char* ddl_error_message(void) { return ddl::c_api::last_message.c_str(); }
