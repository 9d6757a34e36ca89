// The functions of gradient_kernels.hpp for emulated devices, with one thread per block.

#include <algorithm>
#include <mutex>

#include "collectives/device/cuda_check.hpp"
#include "ddl/device/gradients/gradient_kernels.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::gradient_pass {
namespace {

using emulated_cuda::Spot;

constexpr unsigned block_threads = 256;

// Identifies the kernels.
enum Kernel : unsigned char {
  set_kernel,
  take_weight_kernel,
  add_scaled_kernel,
  pack_kernel,
  unpack_kernel,
  unpack_exactly_kernel,
  carry_kernel,
  add_up_exactly_kernel,
  add_up_kernel,
  conclude_kernel,
  kernel_count,
};
constexpr char keys[kernel_count] = {};

emulated_cuda::Launch with(Kernel kernel, unsigned blocks, unsigned threads, cudaStream_t stream) {
  return {.kernel = &keys[kernel], .grid = dim3(blocks), .threads = dim3(threads), .stream = stream};
}

Lane lane_of(const Spot& spot) { return {spot.block.x, spot.grid.x, 0, 1}; }

unsigned blocks_for(std::uint64_t count) {
  const std::uint64_t chunk = std::uint64_t{block_threads} * chunk_of_thread;
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>((count + chunk - 1) / chunk, 1, std::uint64_t{4} * unpacking_blocks));
}

}  // namespace

void launch_set(double* to, double value, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(set_kernel, 1, 1, stream), [=](const Spot&) { *to = value; }),
             "launch of set");
}

void launch_take_weight(double* to, double before, const double* given, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(take_weight_kernel, 1, 1, stream),
                                   [=](const Spot&) { *to = weight_of(before, *given); }),
             "launch of take_weight");
}

void launch_add_scaled(float* target, const void* source, DataType type, std::size_t count, double weight,
                       cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(
                 with(add_scaled_kernel, blocks_for(count), block_threads, stream),
                 [=](const Spot& spot) { add_scaled(target, source, type, count, weight, lane_of(spot)); }),
             "launch of add_scaled");
}

void launch_pack(const Bucket& bucket, double weight, bool adds, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(pack_kernel, blocks_for(bucket.count), block_threads, stream),
                                   [=](const Spot& spot) { pack(bucket, weight, adds, lane_of(spot)); }),
             "launch of pack");
}

void launch_unpack(const Bucket& bucket, const double* weight, const Range& own, double* squares,
                   cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(unpack_kernel, unpacking_blocks, block_threads, stream),
                                   [=](const Spot& spot) {
                                     const double factor = weight == nullptr ? 1 : 1 / *weight;
                                     squares[spot.block.x] = unpack(bucket, factor, own, lane_of(spot));
                                   }),
             "launch of unpack");
}

void launch_unpack_exactly(const Bucket& bucket, const double* weight, const Range& own,
                           ExactSquares* squares, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(unpack_exactly_kernel, unpacking_blocks, block_threads, stream),
                                   [=](const Spot& spot) {
                                     static std::mutex mutex;  // blocks add to the same digits
                                     const std::lock_guard lock(mutex);
                                     const double factor = weight == nullptr ? 1 : 1 / *weight;
                                     unpack_exactly(bucket, factor, own, lane_of(spot), AddInTurn{*squares});
                                   }),
             "launch of unpack");
}

void launch_carry(ExactSquares* squares, bool has_problem, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(carry_kernel, 1, 1, stream),
                                   [=](const Spot&) {
                                     if (has_problem) ++squares->not_finite;
                                     carry(*squares);
                                   }),
             "launch of carry");
}

void launch_add_up(ExactSquares* squares, double* sum, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(add_up_exactly_kernel, 1, 1, stream),
                                   [=](const Spot&) {
                                     carry(*squares);
                                     *sum = value_of(*squares);
                                   }),
             "launch of add_up");
}

void launch_add_up(const double* values, std::size_t count, double* sum, cudaStream_t stream) {
  check_cuda(emulated_cuda::launch(with(add_up_kernel, 1, block_threads, stream),
                                   [=](const Spot&) {
                                     double all = 0;
                                     for (std::size_t i = 0; i < count; ++i) all += values[i];
                                     *sum = all;
                                   }),
             "launch of add_up");
}

void launch_conclude(const double* weight, const double* squares, bool leave_sums, DeviceOutcome* outcome,
                     cudaStream_t stream) {
  check_cuda(
      emulated_cuda::launch(with(conclude_kernel, 1, 1, stream),
                            [=](const Spot&) { *outcome = outcome_of(*weight, *squares, leave_sums); }),
      "launch of conclude");
}

cudaError_t load_gradient_kernels() {
  for (const char& key : keys) {
    cudaFuncAttributes attributes{};
    if (const cudaError_t result = cudaFuncGetAttributes(&attributes, &key); result != cudaSuccess)
      return result;
  }
  return cudaSuccess;
}

}  // namespace ddl::gradient_pass
