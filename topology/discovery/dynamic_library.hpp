#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "ddl/error.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {

/// A library that is there or not when the program runs. What is missing throws `unsupported`.
class DynamicLibrary {
 public:
  /// `flags`: more of dlopen's, as RTLD_NODELETE.
  explicit DynamicLibrary(std::string path, int flags = 0)
      : path_(std::move(path)), library_(dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL | flags)) {
    if (!library_) throw Error(ErrorCode::unsupported, dlerror());
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Null where the library does not have it. See `succeeds`.
  template <typename Function>
  [[nodiscard]] Function* optional(const char* symbol) const {
    return reinterpret_cast<Function*>(dlsym(library_.get(), symbol));
  }
  template <typename Function>
  [[nodiscard]] Function* required(const char* symbol) const {
    Function* const function = optional<Function>(symbol);
    if (function == nullptr) {
      fail_with(ErrorCode::unsupported, "{} has no function {}: the driver is too old", path_, symbol);
    }
    return function;
  }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };

  std::string path_;
  std::unique_ptr<void, Close> library_;
};

/// Whether a call of a function that may be missing returns 0.
template <typename Function, typename... Arguments>
bool succeeds(Function* function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == 0;
}

/// 10 * major + minor, as `GpuDescription` has it; 0 for what is no compute capability.
constexpr int compute_capability(int major, int minor) {
  return major > 0 && major < 100 && minor >= 0 && minor < 10 ? 10 * major + minor : 0;
}

}  // namespace ddl::topology
