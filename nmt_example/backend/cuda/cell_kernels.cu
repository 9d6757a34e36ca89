#include "nmt_example/backend/cell_operations.hpp"
#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

struct DeviceMath {
  __device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
  __device__ static float tanh(float x) { return tanhf(x); }
  __device__ static float sqrt(float x) { return sqrtf(x); }
};

/// The threads of a block.
struct Block {
  __device__ static Index first() { return threadIdx.x; }
  __device__ static Index step() { return blockDim.x; }
  __device__ static float sum(float mine) { return block_sum(mine); }
};

/// A number of 16 bits that is used like a `float&`.
template <typename T>
class NarrowReference {
 public:
  __device__ explicit NarrowReference(T& to) : to_(to) {}
  NarrowReference(const NarrowReference&) = delete;
  __device__ operator float() const { return wide(to_); }
  __device__ float operator=(float value) {
    narrow(value, to_);
    return value;
  }
  __device__ float operator=(const NarrowReference& other) { return *this = static_cast<float>(other); }
  __device__ float operator+=(float value) { return *this = *this + value; }

 private:
  T& to_;
};

/// Numbers of 16 bits that are used like a `float*`.
template <typename T>
class NarrowPointer {
 public:
  NarrowPointer() = default;
  __device__ explicit NarrowPointer(T* to) : to_(to) {}
  __device__ NarrowReference<T> operator[](Index i) const { return NarrowReference<T>(to_[i]); }
  __device__ NarrowPointer operator+(Index n) const { return NarrowPointer(to_ + n); }
  __device__ bool operator==(std::nullptr_t) const { return to_ == nullptr; }

 private:
  T* to_ = nullptr;
};

template <typename Operation, typename Values>
__global__ void __launch_bounds__(block_threads) cell_rows_kernel(CellRows rows) {
  compute_cell_row<Operation, DeviceMath, CellRow<float, Values>>(rows, blockIdx.x, Block());
}

template <typename Values>
void launch(cudaStream_t stream, CellOperation operation, const CellRows& rows) {
  const auto blocks = static_cast<unsigned>(rows.gates.rows);
  with_rows_of(operation, [&](const auto& chosen) {
    using Operation = std::decay_t<decltype(chosen)>;
    launch_kernel(stream, cell_rows_kernel<Operation, Values>, blocks, threads_for(rows.gates.cols), rows);
  });
}

}  // namespace

void cell_rows(cudaStream_t stream, CellOperation operation, const CellRows& rows) {
  if (rows.gates.rows == 0) return;
  if (rows.gates.type == ddl::DataType::bf16)
    launch<NarrowPointer<__nv_bfloat16>>(stream, operation, rows);
  else if (rows.gates.type == ddl::DataType::f16)
    launch<NarrowPointer<__half>>(stream, operation, rows);
  else
    launch<float*>(stream, operation, rows);
}

}  // namespace nmt::cuda
