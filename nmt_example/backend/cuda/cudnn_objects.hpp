#pragma once

#include <fmt/format.h>

#include <source_location>
#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/backend/cuda/cudnn_library.hpp"

namespace nmt::cuda {

/// Throws `unsupported` if `call` (its name, for the message) did not succeed.
inline void check(cudnnStatus_t result, const char* call,
                  std::source_location where = std::source_location::current()) {
  if (result == CUDNN_STATUS_SUCCESS) return;
  const std::string_view path = where.file_name();
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   fmt::format("{} failed ({}:{}): {}. --rnn=loop does without cuDNN", call,
                               path.substr(path.find_last_of('/') + 1), where.line(),
                               CudnnLibrary::get().error_string(result)));
}

/// Owns one of cuDNN's objects.
template <typename T, auto Create, auto Destroy>
class Owned {
 public:
  Owned() { check((CudnnLibrary::get().*Create)(&object_), "making an object of cuDNN"); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { (CudnnLibrary::get().*Destroy)(object_); }
  operator T() const { return object_; }

 private:
  T object_ = nullptr;
};
using Handle = Owned<cudnnHandle_t, &CudnnLibrary::create, &CudnnLibrary::destroy>;
using TensorDescriptor =
    Owned<cudnnTensorDescriptor_t, &CudnnLibrary::create_tensor, &CudnnLibrary::destroy_tensor>;
using DropoutDescriptor =
    Owned<cudnnDropoutDescriptor_t, &CudnnLibrary::create_dropout, &CudnnLibrary::destroy_dropout>;
using RnnDescriptor = Owned<cudnnRNNDescriptor_t, &CudnnLibrary::create_rnn, &CudnnLibrary::destroy_rnn>;
using DataDescriptor =
    Owned<cudnnRNNDataDescriptor_t, &CudnnLibrary::create_data, &CudnnLibrary::destroy_data>;

}  // namespace nmt::cuda
