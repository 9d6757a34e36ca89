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

template <typename Operation>
__global__ void cell_rows_kernel(CellRows rows) {
  compute_cell_row<Operation, DeviceMath, float>(rows, blockIdx.x, Block());
}

}  // namespace

void cell_rows(cudaStream_t stream, CellOperation operation, const CellRows& rows) {
  if (rows.gates.rows == 0) return;
  const auto blocks = static_cast<unsigned>(rows.gates.rows);
  with_rows_of(operation, [&](const auto& chosen) {
    using Operation = std::decay_t<decltype(chosen)>;
    launch_kernel(stream, cell_rows_kernel<Operation>, blocks, block_threads, rows);
  });
}

}  // namespace nmt::cuda
