#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/data_type.hpp"
#include "ddl/ddl.h"
#include "ddl/gradient_reducer.hpp"
#include "ddl/parameter.hpp"
#include "ddl/shared_buffer.hpp"
#include "topology/refuse.hpp"

struct ddl_reducer {
  ddl::GradientReducer reducer;
  std::vector<std::size_t> gradients;  // of each parameter; SIZE_MAX for those without
  std::unique_ptr<ddl::GradientReducer::NoSync> no_sync = nullptr;
  bool has_device_residuals = false;  // what its 16-bit wire owes is in the device's memory
};

namespace ddl {
class DeviceCommunicator;
}

namespace ddl::c_api {

/// A C program's job, between ddl_init and ddl_finalize, and its handles.
class Job {
 public:
  /// The job of this process. Never destroyed, because a program may end without ddl_finalize, which an exit
  /// handler reports.
  static Job& of_process();

  /// Joins the job by Context::from_environment or, with the address of an MPI_Comm, by Context::from_mpi,
  /// and throws as they do; throws `invalid_argument` in a second call. Collective.
  void start(const char* options, const void* communicator = nullptr);
  /// Leaves the job, and then throws `invalid_argument` if a reducer's step was begun and never waited for.
  /// Collective, unless an error has occurred.
  void end();
  [[nodiscard]] bool has_started() const noexcept { return context_.has_value(); }
  [[nodiscard]] const std::string& options() const noexcept { return options_; }

  /// Throws NoJob before `start` and after `end`.
  [[nodiscard]] Context& context();
  /// Throws `invalid_argument` before `use`.
  [[nodiscard]] DeviceCommunicator& device() const;
  [[nodiscard]] bool has_device() const noexcept { return device_ != nullptr; }
  void use(std::shared_ptr<DeviceCommunicator> device) { device_ = std::move(device); }
  /// Allocates memory for ddl_malloc. `alignment`: a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment);
  /// Frees it. Returns false for memory that is not from `allocate`.
  bool release(void* memory);

  /// Makes a handle, which `destroy` or `end` destroys.
  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    const std::shared_ptr<T> handle(new T{std::forward<Arguments>(arguments)...});
    T* const pointer = handle.get();
    handles_.emplace(pointer, handle);
    return pointer;
  }
  /// Does nothing for null. Throws `invalid_argument` for a pointer that is no handle of this job.
  void destroy(const void* handle);
  /// The object of a handle. Throws `invalid_argument` for null and for a pointer that is no handle of this
  /// job.
  template <typename T>
  T& handle(T* handle) const {
    require_handle(handle);
    return *handle;
  }

  /// The reducer of a handle, or, for null, the job's only one. Throws `invalid_argument` for a handle that
  /// is none of this job's, and for null unless there is just one. Any thread, while none makes or frees one.
  ddl_reducer& reducer(ddl_reducer* handle) const;
  /// Makes a handle of `reducer`.
  ddl_reducer* add(std::unique_ptr<ddl_reducer> reducer);
  /// Frees a reducer; does nothing for null. Throws as `end` does, after it is freed.
  void remove(ddl_reducer* handle);

  /// Remembers that a call of the running job has failed. With "-errors abort" it prints the message and ends
  /// the job and the program.
  void note_failure(const Error& error);
  /// Remembers that the program ends by its own will.
  void note_abort() noexcept { has_failed_ = true; }
  /// `what`, or its first line if rank 0 has printed all of it.
  [[nodiscard]] std::string brief(std::string_view what) const;

  /// Held during each call, to detect concurrent ones.
  std::mutex mutex;
  /// The work between ddl_root_begin and ddl_root_end.
  std::optional<RootWork> root_work;

 private:
  void require_handle(const void* handle) const;
  void count_reducers();
  /// The error of a step that has begun and was never waited for, which is printed; nothing if there is none,
  /// or if the job has failed.
  std::optional<Error> unwaited_step(const char* function, ddl_reducer& reducer);

  std::optional<Context> context_;
  std::string options_;
  bool has_ended_ = false;
  bool errors_end_the_program_ = false;
  std::atomic<bool> has_failed_ = false;  // a call has returned an error
  std::vector<ddl_reducer*> reducers_;
  std::atomic<ddl_reducer*> only_reducer_ = nullptr;  // null: none or several
  std::shared_ptr<DeviceCommunicator> device_;
  std::map<void*, SharedBuffer<std::byte>> memory_;
  std::map<const void*, std::shared_ptr<void>> handles_;
};

struct NoJob : std::runtime_error {
  NoJob() : std::runtime_error("there is no job: call it between ddl_init and ddl_finalize") {}
};

using topology::refuse;

/// These convert an argument; they throw `invalid_argument` for a number out of range. `what`: the argument's
/// name.
DataType type_of(int type, std::string_view what = "type");
ReduceOp op_of(int op);
std::size_t count_of(std::int64_t count);
/// Throws `invalid_argument` for null. `what`: the argument's name, for the message.
void require(const void* pointer, const char* what);

/// Stores the calling thread's error message; returns the error code.
int failed(const char* function, const std::exception& error) noexcept;

/// Stores a message for ddl_error_message.
void set_message(const char* function, std::string_view text);

/// Runs `body`, which may throw, for a C function that several threads may call concurrently.
template <typename F>
int reported(const char* function, const F& body) noexcept {
  try {
    body();
    return DDL_OK;
  } catch (const std::exception& error) {
    return failed(function, error);
  }
}

/// Runs `body`, which may throw, for a C function that refuses concurrent calls.
template <typename F>
int guarded(const char* function, const F& body) noexcept {
  return reported(function, [&] {
    const std::unique_lock lock(Job::of_process().mutex, std::try_to_lock);
    if (!lock) refuse("another thread is in a call; found two at once, expected one");
    body(Job::of_process());
  });
}

/// Sets *handle to what `make(job)` returns, or to null if that fails. `what`: the argument's name.
template <typename T, typename F>
int made(const char* function, const char* what, T** handle, const F& make) noexcept {
  return guarded(function, [&](Job& job) {
    require(handle, what);
    *handle = nullptr;
    *handle = make(job);
  });
}

/// Throws `invalid_argument` for arguments that cannot be. `needs_values`: else they may be null.
Model model_of(const ddl_parameter* parameters, int count, bool needs_values = true);
/// A reducer on the job's device. Throws `unsupported` in a build without CUDA.
GradientReducer device_reducer(Job& job, std::vector<Gradient> gradients, GradientReducerOptions options);

/// Gives all ranks `root`'s values, in the device's memory. Throws `unsupported` in a build without CUDA.
void broadcast_on_device(Job& job, const Model& model, int root, DeviceStream stream);

/// Calls `body(reducer)`, which may throw, for a C function of a reducer's step. The step's ddl_reducer_wait
/// then ends with the error too, on all ranks, because callers may ignore it here.
void in_step(const char* function, ddl_reducer* handle, const std::function<void(ddl_reducer&)>& body);
/// The number of a parameter's gradient.
std::size_t index_of(const ddl_reducer& reducer, int parameter);

}  // namespace ddl::c_api
