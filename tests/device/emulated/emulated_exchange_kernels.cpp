// The functions of exchange_kernels.cu for emulated devices, with blocks of the size that real ones have.

#include <algorithm>
#include <array>

#include "collectives/device/exchange_body.hpp"
#include "collectives/device/kernels.hpp"
#include "ddl/cuda_check.hpp"
#include "device/emulated/emulated_block.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 512;

using Body = void (*)(FiberBlock&, const Exchange&, Meeting&);
constexpr std::size_t ops = 5;

template <typename T>
constexpr std::array<Body, 2 * ops> bodies_of() {
  // By ReduceOp: sum, avg, min, max, prod.
  return {exchange_ranges<T, Sum>,     exchange_ranges<T, Sum>,     exchange_ranges<T, Minimum>,
          exchange_ranges<T, Maximum>, exchange_ranges<T, Product>, exchange_all<T, Sum>,
          exchange_all<T, Sum>,        exchange_all<T, Minimum>,    exchange_all<T, Maximum>,
          exchange_all<T, Product>};
}

// By DataType.
constexpr std::array<std::array<Body, 2 * ops>, 7> bodies = {
    bodies_of<std::uint8_t>(), bodies_of<std::int32_t>(), bodies_of<std::int64_t>(), bodies_of<float>(),
    bodies_of<double>(),       bodies_of<float16>(),      bodies_of<bfloat16>()};

const void* key_of(Body body) { return reinterpret_cast<const void*>(body); }

}  // namespace

int exchange_block_threads() { return block_threads; }

void launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                     cudaStream_t stream) {
  const Body body = bodies[static_cast<std::size_t>(type)][static_cast<std::size_t>(op) + (whole ? ops : 0)];
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
  for (const auto& of_type : bodies) {
    for (const Body body : of_type) {
      int blocks = 0;
      const cudaError_t result =
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, key_of(body), block_threads, 0);
      if (result != cudaSuccess) return result;
      blocks_per_multiprocessor = std::min(blocks_per_multiprocessor, blocks);
    }
  }
  return cudaSuccess;
}

}  // namespace ddl::collectives::device
