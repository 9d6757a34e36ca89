#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>

#include "topology/refuse.hpp"

namespace ddl::topology {

/// A library that may be missing at run time. A missing library or function throws `unsupported`.
class DynamicLibrary {
 public:
  /// `flags` are added to dlopen's, e.g. RTLD_NODELETE.
  explicit DynamicLibrary(std::string path, int flags = 0)
      : path_(std::move(path)), library_(dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL | flags)) {
    if (!library_) throw Error(ErrorCode::unsupported, dlerror());
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Null if the library lacks the function. See `succeeds`.
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

/// 10 * major + minor, as in `GpuDescription`; 0 for an impossible compute capability.
constexpr int compute_capability(int major, int minor) {
  return major > 0 && major < 100 && minor >= 0 && minor < 10 ? 10 * major + minor : 0;
}

}  // namespace ddl::topology
