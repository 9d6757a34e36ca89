// cuBLAS for emulated devices: the library's file, with the functions that the trainer uses, in plain loops
// that accumulate in fp32. What cuBLAS refuses is refused.

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/emulated/emulated_cuda.hpp"

struct cublasContext {
  cudaStream_t stream = nullptr;
  bool has_workspace = false;
};

namespace {

constexpr char gemm_kernel = 0;  // its address is the kernel's
/// Blocks of one product, each with some of its columns.
constexpr std::int64_t most_blocks = 2;

/// A column-major matrix, or its transpose.
struct Operand {
  const void* data;
  cudaDataType_t type;
  std::int64_t leading, stride;
  bool is_transposed;
  bool is_tf32 = false;
};

struct Product {
  std::int64_t rows, cols, inner, count;
  float alpha, beta;
  Operand a, b;
  void* c;
  cudaDataType_t type;
  std::int64_t leading, stride;
};

bool is_known(cudaDataType_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F; }

float load(const void* data, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

void store(void* data, cudaDataType_t type, std::int64_t i, float value) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(value);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(data)[i] = __float2half(value);
      break;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

/// With 10 bits of mantissa.
float as_tf32(float value) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000U); }

float at(const Operand& x, std::int64_t number, std::int64_t row, std::int64_t col) {
  if (x.is_transposed) std::swap(row, col);
  const float value = load(x.data, x.type, number * x.stride + col * x.leading + row);
  return x.is_tf32 ? as_tf32(value) : value;
}

/// Columns [begin, end) of product `number` of a batch.
void multiply(const Product& p, std::int64_t number, std::int64_t begin, std::int64_t end) {
  std::vector<float> a(static_cast<std::size_t>(p.rows * p.inner)), sums(static_cast<std::size_t>(p.rows));
  for (std::int64_t k = 0; k < p.inner; ++k)
    for (std::int64_t row = 0; row < p.rows; ++row)
      a[static_cast<std::size_t>(k * p.rows + row)] = at(p.a, number, row, k);
  for (std::int64_t col = begin; col < end; ++col) {
    std::ranges::fill(sums, 0.0f);
    for (std::int64_t k = 0; k < p.inner; ++k) {
      const float factor = at(p.b, number, k, col);
      const float* const from = a.data() + k * p.rows;
      for (std::int64_t row = 0; row < p.rows; ++row)
        sums[static_cast<std::size_t>(row)] += from[row] * factor;
    }
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const std::int64_t place = number * p.stride + col * p.leading + row;
      float value = p.alpha * sums[static_cast<std::size_t>(row)];
      if (p.beta != 0) value += p.beta * load(p.c, p.type, place);
      store(p.c, p.type, place, value);
    }
  }
}

bool is_valid(const Operand& x, std::int64_t rows, std::int64_t cols) {
  return x.data != nullptr && x.leading >= std::max<std::int64_t>(1, x.is_transposed ? cols : rows);
}

cublasStatus_t queue(cublasHandle_t handle, cublasComputeType_t compute, Product p) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (p.rows < 0 || p.cols < 0 || p.inner < 0 || p.count < 0 || !is_valid(p.a, p.rows, p.inner) ||
      !is_valid(p.b, p.inner, p.cols) || p.c == nullptr || p.leading < std::max<std::int64_t>(1, p.rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_fp32 =
      compute == CUBLAS_COMPUTE_32F || (compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type == CUDA_R_32F);
  if (!is_fp32 || p.a.type != p.b.type || !is_known(p.a.type) || (p.type != CUDA_R_32F && p.type != p.a.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!handle->has_workspace) return CUBLAS_STATUS_NOT_INITIALIZED;  // else a capture allocates one
  if (p.rows == 0 || p.cols == 0 || p.count == 0) return CUBLAS_STATUS_SUCCESS;
  p.a.is_tf32 = p.b.is_tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::int64_t blocks = std::min(most_blocks, p.cols);
  const cudaError_t result = emulated_cuda::launch(
      {.kernel = &gemm_kernel,
       .grid = dim3(static_cast<unsigned>(p.count), static_cast<unsigned>(blocks)),
       .threads = dim3(256),
       .stream = handle->stream},
      [=](const emulated_cuda::Spot& spot) {
        multiply(p, spot.block.x, p.cols * spot.block.y / blocks, p.cols * (spot.block.y + 1) / blocks);
      });
  return result == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
/// Also takes the workspace away.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  *handle = {stream, false};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  handle->has_workspace = bytes > 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n, int64_t k,
    const void* alpha, const void* a, cudaDataType_t a_type, int64_t lda, long long a_stride, const void* b,
    cudaDataType_t b_type, int64_t ldb, long long b_stride, const void* beta, void* c, cudaDataType_t c_type,
    int64_t ldc, long long c_stride, int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return queue(handle, compute,
               {m,
                n,
                k,
                count,
                *static_cast<const float*>(alpha),
                *static_cast<const float*>(beta),
                {a, a_type, lda, a_stride, ta != CUBLAS_OP_N},
                {b, b_type, ldb, b_stride, tb != CUBLAS_OP_N},
                c,
                c_type,
                ldc,
                c_stride});
}
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int64_t m,
                               int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType_t a_type,
                               int64_t lda, const void* b, cudaDataType_t b_type, int64_t ldb,
                               const void* beta, void* c, cudaDataType_t c_type, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0,
                                       beta, c, c_type, ldc, 0, 1, compute, algorithm);
}

const char* cublasGetStatusName(cublasStatus_t) { return "an emulated status"; }
const char* cublasGetStatusString(cublasStatus_t) { return "an emulated status"; }

}  // extern "C"
