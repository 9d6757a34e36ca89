#include <algorithm>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/kernels.hpp"
#include "collectives/device/reproducible_body.hpp"

namespace ddl::collectives::device {
namespace {

constexpr unsigned block_threads = 256;
constexpr std::uint64_t most_blocks_of_pass = 2048;  // enough for any device
constexpr std::uint64_t most_runs_at_once = 65'535;  // CUDA's limit for gridDim.y

template <ExactStep step, typename F>
__global__ void __launch_bounds__(block_threads) exact_kernel(const __grid_constant__ ExactPass pass) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * block_threads;
  for (std::uint64_t run = blockIdx.y; run < pass.runs; run += gridDim.y) {
    for (std::uint64_t at = first; at < pass.length; at += stride) take_step<step, F>(pass, run, at);
  }
}

using Kernel = void (*)(ExactPass);
template <ExactStep step, typename F>
struct KernelOf {
  static constexpr Kernel value = exact_kernel<step, F>;
};
const auto kernels = exact_kernels_of_all<Kernel, KernelOf>();

}  // namespace

void launch_exact_step(ExactStep step, DataType type, const ExactPass& pass, cudaStream_t stream) {
  const std::uint64_t runs = std::min(pass.runs, most_runs_at_once);
  const std::uint64_t blocks = (pass.length + block_threads - 1) / block_threads;
  const std::uint64_t most = std::max<std::uint64_t>(most_blocks_of_pass / runs, 1);
  const dim3 grid(static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, most)),
                  static_cast<unsigned>(runs));
  kernels[index_of_float(type)][static_cast<std::size_t>(step)]<<<grid, block_threads, 0, stream>>>(pass);
  check_cuda(cudaGetLastError(), "launch of an exact step");
}

cudaError_t load_exact_kernels() { return load_kernels(kernels); }

}  // namespace ddl::collectives::device
