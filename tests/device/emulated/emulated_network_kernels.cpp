// The functions of network_kernels.hpp for emulated devices: one thread a kernel.

#include <array>

#include "collectives/device/network_kernels.hpp"
#include "device/emulated/emulated_block.hpp"

namespace ddl::collectives::device {
namespace {

using Body = void (*)(EmulatedBlock&, const Combination&, Meeting&);

template <typename T>
constexpr std::array<Body, 5> bodies_of() {
  // By ReduceOp: sum, avg, min, max, prod.
  return {combine<T, Sum>, combine<T, Sum>, combine<T, Minimum>, combine<T, Maximum>, combine<T, Product>};
}

// By DataType.
constexpr std::array<std::array<Body, 5>, 7> bodies = {
    bodies_of<std::uint8_t>(), bodies_of<std::int32_t>(), bodies_of<std::int64_t>(), bodies_of<float>(),
    bodies_of<double>(),       bodies_of<float16>(),      bodies_of<bfloat16>()};

}  // namespace

cudaError_t launch_combine(const Combination& combination, DataType type, ReduceOp op, cudaStream_t stream) {
  const Body body = bodies[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  return emulated_cuda::launch(stream, [=](int device) {
    std::barrier<> barrier(1);
    EmulatedBlock block(device, 0, 1, 0, 1, barrier);
    Meeting meeting;
    body(block, combination, meeting);
  });
}

cudaError_t launch_hold(Gate* gate, std::uint32_t call, std::uint64_t timeout_ns, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int device) {
    std::barrier<> barrier(1);
    EmulatedBlock block(device, 0, 1, 0, 1, barrier);
    try {
      hold(block, *gate, call, timeout_ns);
    } catch (const DeviceLost&) {
    }
  });
}

cudaError_t load_network_kernels() { return cudaDeviceSynchronize(); }

}  // namespace ddl::collectives::device
