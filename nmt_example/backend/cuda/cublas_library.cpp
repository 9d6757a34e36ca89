#include "nmt_example/backend/cuda/cublas_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "ddl/error.hpp"

namespace nmt::cuda {

const CublasLibrary& CublasLibrary::get() {
  static const CublasLibrary library(DDL_CUBLAS_LIBRARY);
  return library;
}

CublasLibrary::CublasLibrary(const char* name) {
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
        fmt::format("cuBLAS cannot be used: {}. Install that of CUDA {} (PyTorch's packages have it in "
                    "nvidia/*/lib), and see that LD_LIBRARY_PATH names its folder, or use --device=cpu",
                    dlerror(), CUBLAS_VER_MAJOR));
  };
  bind(create, "cublasCreate_v2");
  bind(destroy, "cublasDestroy_v2");
  bind(set_stream, "cublasSetStream_v2");
  bind(set_workspace, "cublasSetWorkspace_v2");
  bind(set_math_mode, "cublasSetMathMode");
  bind(set_atomics_mode, "cublasSetAtomicsMode");
  bind(gemm, "cublasGemmEx_64");
  bind(gemm_strided_batched, "cublasGemmStridedBatchedEx_64");
  bind(status_name, "cublasGetStatusName");
  bind(status_string, "cublasGetStatusString");
}

}  // namespace nmt::cuda
