#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "ddl/error.hpp"

namespace nmt::cuda {

/// A library that is loaded when it is first needed, by its file name as the dynamic loader does, then from
/// the toolkit that this program was built with, which the loader may not know. It is never unloaded.
class LateLibrary {
 public:
  /// `product` and `advice` are parts of the errors of `bind`.
  LateLibrary(const char* name, std::string product, std::string advice)
      : product_(std::move(product)), advice_(std::move(advice)), library_(open(name)) {
    if (library_ == nullptr) library_ = open(fmt::format("{}/{}", DDL_CUDA_LIBRARIES, name).c_str());
  }

  /// Throws `unsupported` if the library or the function is missing.
  template <typename Function>
  void bind(Function& function, const char* symbol) const {
    function = library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, symbol));
    if (function != nullptr) return;
    throw ddl::Error(ddl::ErrorCode::unsupported,
                     fmt::format("{} cannot be used: {}. {}", product_, dlerror(), advice_));
  }

 private:
  static void* open(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

  std::string product_, advice_;
  void* library_;
};

}  // namespace nmt::cuda
