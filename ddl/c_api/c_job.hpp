#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ddl/context.hpp"
#include "ddl/ddl.h"
#include "ddl/shared_buffer.hpp"

namespace ddl::c_api {

/// A C program's job: what stands between ddl_init and ddl_finalize.
class Job {
 public:
  /// The process's. Never destroyed: a program may end without ddl_finalize.
  static Job& of_process();

  /// Collective. Throws `invalid_argument` a second time, and as Context::from_environment.
  void start(const char* options);
  /// Collective, unless something has failed.
  void end();
  [[nodiscard]] bool has_started() const noexcept { return context_.has_value(); }
  [[nodiscard]] const std::string& options() const noexcept { return options_; }

  /// Null before `start` and after `end`.
  [[nodiscard]] Context* context() noexcept { return context_ ? &*context_ : nullptr; }
  /// `alignment`: a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment);
  /// False if it is not from `allocate`.
  bool release(void* memory);

  /// Held by each call.
  std::mutex mutex;

 private:
  std::optional<Context> context_;
  std::string options_;
  bool has_ended_ = false;
  std::map<void*, SharedBuffer<std::byte>> memory_;
};

/// Notes the calling thread's error; returns `error`.
int failed(int error, const std::string& message) noexcept;
int failed(const char* function, const std::exception& error) noexcept;
int not_initialized(const char* function) noexcept;

/// Runs `body`, which may throw, for a C function.
template <typename F>
int guarded(const char* function, F&& body) noexcept {
  const std::unique_lock lock(Job::of_process().mutex, std::try_to_lock);
  try {
    if (!lock) {
      return failed(DDL_INVALID_ARGUMENT,
                    std::string(function) + ": another thread is in a call; found two at once, expected one");
    }
    return std::forward<F>(body)(Job::of_process());
  } catch (const std::exception& error) {
    return failed(function, error);
  }
}

/// The same for what needs a context.
template <typename F>
int in_job(const char* function, F&& body) noexcept {
  return guarded(function, [&](Job& job) -> int {
    if (job.context() == nullptr) return not_initialized(function);
    return std::forward<F>(body)(*job.context());
  });
}

}  // namespace ddl::c_api
