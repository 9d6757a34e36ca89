// The functions of network_kernels.cu for emulated devices, with one thread per block.

#include <algorithm>
#include <array>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/kernels.hpp"
#include "device/emulated/emulated_block.hpp"

namespace ddl::collectives::device {
namespace {

constexpr int block_threads = 512;
constexpr std::uint64_t most_combining_blocks = 64;
constexpr std::uint64_t packs_of_thread = 4;

using Body = void (*)(WholeBlock&, const Combination&, Meeting&);

template <typename T, typename Op>
struct CombineBody {
  static constexpr Body value = combine<T, Op>;
};
constexpr auto& bodies = by_type_and_op<CombineBody>;

using WireBody = void (*)(WholeBlock&, const WirePass&);

// By type (f16, bf16) and direction.
constexpr WireBody wire_bodies[2][2] = {{pass_wire<float16, false>, pass_wire<float16, true>},
                                        {pass_wire<bfloat16, false>, pass_wire<bfloat16, true>}};

constexpr char hold_kernel = 0;

template <typename Any>
const void* key_of(Any body) {
  return reinterpret_cast<const void*>(body);
}

}  // namespace

void launch_combine(const Combination& combination, DataType type, ReduceOp op, cudaStream_t stream) {
  constexpr std::uint64_t bytes_of_block = packs_of_thread * pack_bytes * block_threads;
  const std::uint64_t wanted = combination.elements * size_of(type) / bytes_of_block + 1;
  const Body body = bodies[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  check_cuda(
      emulated_cuda::launch({.kernel = key_of(body),
                             .grid = dim3(static_cast<unsigned>(std::min(wanted, most_combining_blocks))),
                             .threads = dim3(block_threads),
                             .stream = stream},
                            [=](const emulated_cuda::Spot& spot) {
                              WholeBlock block(spot);
                              Meeting meeting;
                              body(block, combination, meeting);
                            }),
      "launch of a combination");
}

void launch_wire(const WirePass& pass, DataType type, bool narrows, cudaStream_t stream) {
  constexpr std::uint64_t most_wire_blocks = 512;
  const std::uint64_t wanted = pass.pieces * pass.length / (4 * block_threads) + 1;
  const WireBody body = wire_bodies[type == DataType::bf16 ? 1 : 0][narrows ? 1 : 0];
  check_cuda(emulated_cuda::launch({.kernel = key_of(body),
                                    .grid = dim3(static_cast<unsigned>(std::min(wanted, most_wire_blocks))),
                                    .threads = dim3(block_threads),
                                    .stream = stream},
                                   [=](const emulated_cuda::Spot& spot) {
                                     WholeBlock block(spot);
                                     body(block, pass);
                                   }),
             "launch of a wire pass");
}

void launch_hold(Gate* gate, std::uint64_t call, std::uint64_t timeout_ns, cudaStream_t stream) {
  check_cuda(
      emulated_cuda::launch(
          {.kernel = &hold_kernel, .grid = dim3(1), .threads = dim3(1), .stream = stream, .waits = true},
          [=](const emulated_cuda::Spot& spot) {
            WholeBlock block(spot);
            try {
              hold(block, *gate, call, timeout_ns);
            } catch (const DeviceLost&) {
            }
          }),
      "launch of a hold");
}

cudaError_t load_network_kernels() { return load_kernels(bodies, wire_bodies, &hold_kernel); }

}  // namespace ddl::collectives::device
