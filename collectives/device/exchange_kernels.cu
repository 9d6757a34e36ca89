#include <algorithm>
#include <array>
#include <ranges>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/device_block.hpp"
#include "collectives/device/exchange_body.hpp"
#include "collectives/device/kernels.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 512;
constexpr int blocks_at_a_time = 2;  // at least, per multiprocessor: ranks may share a device

template <typename T, typename Op>
__global__ void __launch_bounds__(block_threads, blocks_at_a_time)
    ranges_kernel(const __grid_constant__ Exchange exchange) {
  __shared__ Meeting meeting;
  DeviceBlock block;
  exchange_ranges<T, Op>(block, exchange, meeting);
}

template <typename T, typename Op>
__global__ void __launch_bounds__(block_threads, blocks_at_a_time)
    all_kernel(const __grid_constant__ Exchange exchange) {
  __shared__ Meeting meeting;
  DeviceBlock block;
  exchange_all<T, Op>(block, exchange, meeting);
}

template <typename T, typename Op>
struct RangesKernel {
  static constexpr auto value = ranges_kernel<T, Op>;
};
template <typename T, typename Op>
struct AllKernel {
  static constexpr auto value = all_kernel<T, Op>;
};
const std::array kernels = {by_type_and_op<RangesKernel>, by_type_and_op<AllKernel>};

}  // namespace

int exchange_block_threads() { return block_threads; }

void launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                     cudaStream_t stream) {
  const auto kernel = kernels[whole ? 1 : 0][static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(exchange);
  check_cuda(cudaGetLastError(), "launch of an exchange");
}

cudaError_t load_exchange_kernels(int& blocks_per_multiprocessor) {
  blocks_per_multiprocessor = most_blocks;
  for (const auto kernel : kernels | std::views::join | std::views::join) {
    int blocks = 0;
    const cudaError_t result =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block_threads, 0);
    if (result != cudaSuccess) return result;
    blocks_per_multiprocessor = std::min(blocks_per_multiprocessor, blocks);
  }
  return cudaSuccess;
}

}  // namespace ddl::collectives::device
