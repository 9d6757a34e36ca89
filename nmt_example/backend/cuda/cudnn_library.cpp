#include "nmt_example/backend/cuda/cudnn_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "ddl/error.hpp"

namespace nmt::cuda {

const CudnnLibrary& CudnnLibrary::get() {
  static const CudnnLibrary library("libcudnn.so.9");
  return library;
}

CudnnLibrary::CudnnLibrary(const char* name) {
  // Otherwise cuBLAS inside cuDNN shares its workspace between streams, and sums in any order.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2", 0);
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {  // the loader may not know the toolkit that this program was built with
    library = dlopen(fmt::format("{}/{}", DDL_CUDA_LIBRARIES, name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  const auto bind = [&](auto& function, const char* symbol) {
    function = library == nullptr
                   ? nullptr
                   : reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function != nullptr) return;
    throw ddl::Error(
        ddl::ErrorCode::unsupported,
        fmt::format("cuDNN cannot be used: {}. Install cuDNN 9 (PyTorch's packages have it in nvidia/cudnn/"
                    "lib), and see that LD_LIBRARY_PATH names its folder, or use --rnn=loop",
                    dlerror()));
  };
  bind(create, "cudnnCreate");
  bind(destroy, "cudnnDestroy");
  bind(set_stream, "cudnnSetStream");
  bind(error_string, "cudnnGetErrorString");
  bind(create_tensor, "cudnnCreateTensorDescriptor");
  bind(destroy_tensor, "cudnnDestroyTensorDescriptor");
  bind(set_tensor, "cudnnSetTensorNdDescriptor");
  bind(create_dropout, "cudnnCreateDropoutDescriptor");
  bind(destroy_dropout, "cudnnDestroyDropoutDescriptor");
  bind(set_dropout, "cudnnSetDropoutDescriptor");
  bind(create_rnn, "cudnnCreateRNNDescriptor");
  bind(destroy_rnn, "cudnnDestroyRNNDescriptor");
  bind(set_rnn, "cudnnSetRNNDescriptor_v8");
  bind(create_data, "cudnnCreateRNNDataDescriptor");
  bind(destroy_data, "cudnnDestroyRNNDataDescriptor");
  bind(set_data, "cudnnSetRNNDataDescriptor");
  bind(weight_bytes, "cudnnGetRNNWeightSpaceSize");
  bind(weights, "cudnnGetRNNWeightParams");
  bind(work_bytes, "cudnnGetRNNTempSpaceSizes");
  bind(forward, "cudnnRNNForward");
  bind(backward_data, "cudnnRNNBackwardData_v8");
  bind(backward_weights, "cudnnRNNBackwardWeights_v8");
}

}  // namespace nmt::cuda
