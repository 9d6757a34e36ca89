#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddl/context.hpp"
#include "ddl/data_type.hpp"
#include "ddl/ddl.h"
#include "ddl/error.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {
class DeviceCommunicator;
}

namespace ddl::c_api {

/// A C program's job: what stands between ddl_init and ddl_finalize.
class Job {
 public:
  /// The process's. Never destroyed: a program may end without ddl_finalize, which is told then.
  static Job& of_process();

  /// Collective. Throws `invalid_argument` a second time, and as Context::from_environment, or, with the
  /// address of an MPI_Comm, as Context::from_mpi.
  void start(const char* options, const void* communicator = nullptr);
  /// Collective, unless something has failed.
  void end();
  [[nodiscard]] bool has_started() const noexcept { return context_.has_value(); }
  [[nodiscard]] const std::string& options() const noexcept { return options_; }

  /// Throws NoJob before `start` and after `end`.
  [[nodiscard]] Context& context();
  /// Throws `invalid_argument` before `use`.
  [[nodiscard]] DeviceCommunicator& device() const;
  [[nodiscard]] bool has_device() const noexcept { return device_ != nullptr; }
  void use(std::shared_ptr<DeviceCommunicator> device) { device_ = std::move(device); }
  /// `alignment`: a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment);
  /// False if it is not from `allocate`.
  bool release(void* memory);

  /// Makes a handle, which `end` destroys unless `destroy` has before.
  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    const std::shared_ptr<T> handle(new T{std::forward<Arguments>(arguments)...});
    T* const pointer = handle.get();
    handles_.emplace(pointer, handle);
    return pointer;
  }
  /// Null is fine. Throws `invalid_argument` for what is no handle.
  void destroy(const void* handle);
  /// Throws `invalid_argument` for null, and for what is no handle of this job.
  template <typename T>
  T& handle(T* handle) const {
    require_handle(handle);
    return *handle;
  }

  /// Held by each call.
  std::mutex mutex;

 private:
  void require_handle(const void* handle) const;

  std::optional<Context> context_;
  std::string options_;
  bool has_ended_ = false;
  std::shared_ptr<DeviceCommunicator> device_;
  std::map<void*, SharedBuffer<std::byte>> memory_;
  std::map<const void*, std::shared_ptr<void>> handles_;
};

struct NoJob : std::runtime_error {
  NoJob() : std::runtime_error("there is no job: call it between ddl_init and ddl_finalize") {}
};

[[noreturn]] void refuse(const std::string& text);
/// Each throws `invalid_argument` for what is none.
DataType type_of(int type);
ReduceOp op_of(int op);
std::size_t count_of(std::int64_t count);
/// `what`: the argument's name, for the error.
void require(const void* pointer, const char* what);

/// Notes the calling thread's error; returns its number.
int failed(const char* function, const std::exception& error) noexcept;

/// Runs `body`, which may throw, for a C function that several threads may call at a time.
template <typename F>
int reported(const char* function, const F& body) noexcept {
  try {
    body();
    return DDL_OK;
  } catch (const std::exception& error) {
    return failed(function, error);
  }
}

/// Runs `body`, which may throw, for a C function that one thread at a time may call.
template <typename F>
int guarded(const char* function, const F& body) noexcept {
  return reported(function, [&] {
    const std::unique_lock lock(Job::of_process().mutex, std::try_to_lock);
    if (!lock) refuse("another thread is in a call; found two at once, expected one");
    body(Job::of_process());
  });
}

}  // namespace ddl::c_api
