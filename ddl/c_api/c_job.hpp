#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "ddl/context.hpp"
#include "ddl/ddl.h"
#include "ddl/error.hpp"
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

  /// Throws NoJob before `start` and after `end`.
  [[nodiscard]] Context& context();
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

struct NoJob : std::runtime_error {
  NoJob() : std::runtime_error("there is no job: call it between ddl_init and ddl_finalize") {}
};

/// Notes the calling thread's error; returns its number.
int failed(const char* function, const std::exception& error) noexcept;

/// Runs `body`, which may throw, for a C function.
template <typename F>
int guarded(const char* function, const F& body) noexcept {
  const std::unique_lock lock(Job::of_process().mutex, std::try_to_lock);
  try {
    if (!lock) {
      throw Error(ErrorCode::invalid_argument,
                  "another thread is in a call; found two at once, expected one");
    }
    body(Job::of_process());
    return DDL_OK;
  } catch (const std::exception& error) {
    return failed(function, error);
  }
}

}  // namespace ddl::c_api
