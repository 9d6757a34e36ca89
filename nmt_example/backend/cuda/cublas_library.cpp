#include "nmt_example/backend/cuda/cublas_library.hpp"

#include <fmt/format.h>

#include "nmt_example/backend/cuda/late_library.hpp"

namespace nmt::cuda {

const CublasLibrary& CublasLibrary::get() {
  static const CublasLibrary library(fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR).c_str());
  return library;
}

CublasLibrary::CublasLibrary(const char* name) {
  const LateLibrary library(
      name, "cuBLAS",
      fmt::format("Install that of CUDA {} (PyTorch's packages have it in nvidia/*/lib), and "
                  "see that LD_LIBRARY_PATH names its folder, or use --device=cpu",
                  CUBLAS_VER_MAJOR));
  library.bind(create, "cublasCreate_v2");
  library.bind(destroy, "cublasDestroy_v2");
  library.bind(set_stream, "cublasSetStream_v2");
  library.bind(set_workspace, "cublasSetWorkspace_v2");
  library.bind(set_math_mode, "cublasSetMathMode");
  library.bind(set_atomics_mode, "cublasSetAtomicsMode");
  library.bind(gemm, "cublasGemmEx_64");
  library.bind(gemm_strided_batched, "cublasGemmStridedBatchedEx_64");
  library.bind(status_name, "cublasGetStatusName");
  library.bind(status_string, "cublasGetStatusString");
}

}  // namespace nmt::cuda
