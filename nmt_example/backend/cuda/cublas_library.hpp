#pragma once

#include <cublas_v2.h>

namespace nmt::cuda {

/// cuBLAS, loaded when a device is first used: a process that only maps it takes 150 MB more memory.
struct CublasLibrary {
  /// Throws `unsupported`, saying what was looked for and what to do.
  static const CublasLibrary& get();
  /// Looks for the library by its file name, as the dynamic loader does. It is never unloaded.
  explicit CublasLibrary(const char* name);

  decltype(&::cublasCreate) create;
  decltype(&::cublasDestroy) destroy;
  decltype(&::cublasSetStream) set_stream;
  decltype(&::cublasSetWorkspace) set_workspace;
  decltype(&::cublasSetMathMode) set_math_mode;
  decltype(&::cublasSetAtomicsMode) set_atomics_mode;
  decltype(&::cublasGemmEx_64) gemm;
  decltype(&::cublasGemmStridedBatchedEx_64) gemm_strided_batched;
  decltype(&::cublasGetStatusName) status_name;
  decltype(&::cublasGetStatusString) status_string;
};

}  // namespace nmt::cuda
