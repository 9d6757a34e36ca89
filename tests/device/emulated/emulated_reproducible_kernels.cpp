// The functions of reproducible_kernels.cu for emulated devices: a block processes its elements in sequence.

#include <algorithm>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/kernels.hpp"
#include "collectives/device/reproducible_body.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::collectives::device {
namespace {

constexpr unsigned block_threads = 256;
constexpr std::uint64_t most_blocks_of_pass = 2048;
constexpr std::uint64_t most_runs_at_once = 65'535;

template <ExactStep step, typename F>
void work_off(const emulated_cuda::Spot& spot, const ExactPass& pass) {
  const std::uint64_t stride = std::uint64_t{spot.grid.x} * block_threads;
  for (std::uint64_t run = spot.block.y; run < pass.runs; run += spot.grid.y) {
    for (std::uint64_t first = std::uint64_t{spot.block.x} * block_threads; first < pass.length;
         first += stride) {
      const std::uint64_t end = std::min(first + block_threads, pass.length);
      for (std::uint64_t at = first; at < end; ++at) take_step<step, F>(pass, run, at);
    }
  }
}

using Body = void (*)(const emulated_cuda::Spot&, const ExactPass&);
template <ExactStep step, typename F>
struct BodyOf {
  static constexpr Body value = work_off<step, F>;
};
constexpr auto bodies = exact_kernels_of_all<Body, BodyOf>();

const void* key_of(Body body) { return reinterpret_cast<const void*>(body); }

}  // namespace

void launch_exact_step(ExactStep step, DataType type, const ExactPass& pass, cudaStream_t stream) {
  const std::uint64_t runs = std::min(pass.runs, most_runs_at_once);
  const std::uint64_t blocks = (pass.length + block_threads - 1) / block_threads;
  const std::uint64_t most =
      std::max<std::uint64_t>(most_blocks_of_pass / std::max<std::uint64_t>(runs, 1), 1);
  const Body body = bodies[index_of_float(type)][static_cast<std::size_t>(step)];
  check_cuda(
      emulated_cuda::launch({.kernel = key_of(body),
                             .grid = dim3(static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, most)),
                                          static_cast<unsigned>(runs)),
                             .threads = dim3(block_threads),
                             .stream = stream},
                            [=](const emulated_cuda::Spot& spot) { body(spot, pass); }),
      "launch of an exact step");
}

cudaError_t load_exact_kernels() { return load_kernels(bodies); }

}  // namespace ddl::collectives::device
