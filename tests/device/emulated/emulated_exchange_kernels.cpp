// The functions of exchange_kernels.cu for emulated devices, with blocks of the real size.

#include <algorithm>
#include <array>
#include <ranges>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/exchange_body.hpp"
#include "collectives/device/kernels.hpp"
#include "device/emulated/emulated_block.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 512;

using Body = void (*)(FiberBlock&, const Exchange&, Meeting&);
template <typename T, typename Op>
struct RangesBody {
  static constexpr Body value = exchange_ranges<T, Op>;
};
template <typename T, typename Op>
struct AllBody {
  static constexpr Body value = exchange_all<T, Op>;
};
constexpr std::array bodies = {by_type_and_op<RangesBody>, by_type_and_op<AllBody>};

const void* key_of(Body body) { return reinterpret_cast<const void*>(body); }

}  // namespace

int exchange_block_threads() { return block_threads; }

void launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                     cudaStream_t stream) {
  const Body body = bodies[whole ? 1 : 0][static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  check_cuda(emulated_cuda::launch({.kernel = key_of(body),
                                    .grid = dim3(static_cast<unsigned>(blocks)),
                                    .threads = dim3(block_threads),
                                    .stream = stream,
                                    .waits = true},
                                   [=](const emulated_cuda::Spot& spot) {
                                     Meeting meeting;
                                     emulated_cuda::run_fibers(spot.device, block_threads, [&](int thread) {
                                       FiberBlock block(spot, thread, block_threads);
                                       body(block, exchange, meeting);
                                     });
                                   }),
             "launch of an exchange");
}

cudaError_t load_exchange_kernels(int& blocks_per_multiprocessor) {
  blocks_per_multiprocessor = most_blocks;
  for (const Body body : bodies | std::views::join | std::views::join) {
    int blocks = 0;
    const cudaError_t result =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, key_of(body), block_threads, 0);
    if (result != cudaSuccess) return result;
    blocks_per_multiprocessor = std::min(blocks_per_multiprocessor, blocks);
  }
  return cudaSuccess;
}

}  // namespace ddl::collectives::device
