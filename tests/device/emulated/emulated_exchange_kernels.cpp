// The functions of exchange_kernels.hpp for emulated devices: blocks of two threads, which are the host's.

#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "collectives/device/exchange_body.hpp"
#include "collectives/device/exchange_kernels.hpp"
#include "device/emulated/emulated_block.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 2;

using Body = void (*)(EmulatedBlock&, const Exchange&, Meeting&);
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

void run_block(int device, int index, int blocks, const Exchange& exchange, Body body) {
  std::barrier<> barrier(block_threads);
  Meeting meeting;
  std::vector<std::jthread> running;
  for (int thread = 0; thread < block_threads; ++thread) {
    running.emplace_back([&, thread] {
      EmulatedBlock block(device, index, blocks, thread, block_threads, barrier);
      try {
        body(block, exchange, meeting);
      } catch (const DeviceLost&) {
        barrier.arrive_and_drop();
      }
    });
  }
}

}  // namespace

int exchange_block_threads() { return block_threads; }

cudaError_t launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                            cudaStream_t stream) {
  const Body body = bodies[static_cast<std::size_t>(type)][static_cast<std::size_t>(op) + (whole ? ops : 0)];
  return emulated_cuda::launch(stream, [=](int device) {
    std::vector<std::jthread> running;
    for (int index = 0; index < blocks; ++index) {
      running.emplace_back(run_block, device, index, blocks, exchange, body);
    }
  });
}

cudaError_t load_exchange_kernels(int& blocks_per_multiprocessor) {
  blocks_per_multiprocessor = 1;
  return cudaDeviceSynchronize();
}

}  // namespace ddl::collectives::device
