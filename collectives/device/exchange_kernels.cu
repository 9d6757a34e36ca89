#include <algorithm>
#include <array>

#include "collectives/device/device_block.hpp"
#include "collectives/device/exchange_body.hpp"
#include "collectives/device/kernels.hpp"
#include "ddl/cuda_check.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 512;
constexpr int blocks_at_a_time = 2;  // on a multiprocessor at least: ranks may share a device

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

using Kernel = void (*)(Exchange);
constexpr std::size_t types = 7;
constexpr std::size_t ops = 5;

template <typename T>
constexpr std::array<Kernel, 2 * ops> kernels_of() {
  // By ReduceOp: sum, avg, min, max, prod.
  return {ranges_kernel<T, Sum>,     ranges_kernel<T, Sum>,     ranges_kernel<T, Minimum>,
          ranges_kernel<T, Maximum>, ranges_kernel<T, Product>, all_kernel<T, Sum>,
          all_kernel<T, Sum>,        all_kernel<T, Minimum>,    all_kernel<T, Maximum>,
          all_kernel<T, Product>};
}

// By DataType.
static_assert(static_cast<std::size_t>(DataType::u8) == 0 && static_cast<std::size_t>(DataType::bf16) == 6);
const std::array<std::array<Kernel, 2 * ops>, types> kernels = {
    kernels_of<std::uint8_t>(), kernels_of<std::int32_t>(), kernels_of<std::int64_t>(), kernels_of<float>(),
    kernels_of<double>(),       kernels_of<float16>(),      kernels_of<bfloat16>()};

}  // namespace

int exchange_block_threads() { return block_threads; }

void launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                     cudaStream_t stream) {
  const Kernel kernel =
      kernels[static_cast<std::size_t>(type)][static_cast<std::size_t>(op) + (whole ? ops : 0)];
  kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(exchange);
  check_cuda(cudaGetLastError(), "launch of an exchange");
}

cudaError_t load_exchange_kernels(int& blocks_per_multiprocessor) {
  blocks_per_multiprocessor = most_blocks;
  for (const auto& of_type : kernels) {
    for (const Kernel kernel : of_type) {
      int blocks = 0;
      const cudaError_t result =
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block_threads, 0);
      if (result != cudaSuccess) return result;
      blocks_per_multiprocessor = std::min(blocks_per_multiprocessor, blocks);
    }
  }
  return cudaSuccess;
}

}  // namespace ddl::collectives::device
