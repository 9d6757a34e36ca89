#include <algorithm>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/device_block.hpp"
#include "collectives/device/kernels.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 512;
constexpr std::uint64_t most_combining_blocks = 64;  // enough for any network's bandwidth
constexpr std::uint64_t most_wire_blocks = 512;
constexpr std::uint64_t packs_of_thread = 4;

template <typename T, typename Op>
__global__ void __launch_bounds__(block_threads)
    combine_kernel(const __grid_constant__ Combination combination) {
  __shared__ Meeting meeting;
  DeviceBlock block;
  combine<T, Op>(block, combination, meeting);
}

__global__ void hold_kernel(Gate* gate, std::uint64_t call, std::uint64_t timeout_ns) {
  DeviceBlock block;
  hold(block, *gate, call, timeout_ns);
}

template <typename T, bool narrows>
__global__ void __launch_bounds__(block_threads) wire_kernel(const __grid_constant__ WirePass pass) {
  DeviceBlock block;
  pass_wire<T, narrows>(block, pass);
}

template <typename T, typename Op>
struct CombineKernel {
  static constexpr auto value = combine_kernel<T, Op>;
};
constexpr auto& kernels = by_type_and_op<CombineKernel>;

using WireKernel = void (*)(WirePass);
// For f16 and bf16: widen, narrow.
constexpr WireKernel wire_kernels[2][2] = {{wire_kernel<float16, false>, wire_kernel<float16, true>},
                                           {wire_kernel<bfloat16, false>, wire_kernel<bfloat16, true>}};

}  // namespace

void launch_wire(const WirePass& pass, DataType type, bool narrows, cudaStream_t stream) {
  const std::uint64_t wanted = pass.pieces * pass.length / (4 * block_threads) + 1;
  const auto blocks = static_cast<unsigned>(std::min(wanted, most_wire_blocks));
  wire_kernels[type == DataType::bf16 ? 1 : 0][narrows ? 1 : 0]<<<blocks, block_threads, 0, stream>>>(pass);
  check_cuda(cudaGetLastError(), "launch of a wire pass");
}

void launch_combine(const Combination& combination, DataType type, ReduceOp op, cudaStream_t stream) {
  constexpr std::uint64_t bytes_of_block = packs_of_thread * pack_bytes * block_threads;
  const std::uint64_t wanted = combination.elements * size_of(type) / bytes_of_block + 1;
  const auto blocks = static_cast<unsigned>(std::min(wanted, most_combining_blocks));
  kernels[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)]<<<blocks, block_threads, 0, stream>>>(
      combination);
  check_cuda(cudaGetLastError(), "launch of a combination");
}

void launch_hold(Gate* gate, std::uint64_t call, std::uint64_t timeout_ns, cudaStream_t stream) {
  hold_kernel<<<1, 1, 0, stream>>>(gate, call, timeout_ns);
  check_cuda(cudaGetLastError(), "launch of a hold");
}

cudaError_t load_network_kernels() { return load_kernels(kernels, wire_kernels, hold_kernel); }

}  // namespace ddl::collectives::device
