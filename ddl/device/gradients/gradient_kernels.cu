#include <algorithm>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/kernels.hpp"
#include "ddl/device/gradients/gradient_kernels.hpp"

namespace ddl::gradient_pass {
namespace {

constexpr unsigned block_threads = 256;

__device__ Lane this_lane() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }

/// The sum of all threads' values, always in the same order. Valid on thread 0.
__device__ double sum_of_block(double own) {
  __shared__ double sums[block_threads];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

__global__ void set_kernel(double* to, double value) { *to = value; }

__global__ void take_weight_kernel(double* to, double before, const double* given) {
  *to = weight_of(before, *given);
}

__global__ void __launch_bounds__(block_threads)
    add_scaled_kernel(float* target, const void* source, DataType type, std::uint64_t count, double weight) {
  add_scaled(target, source, type, count, weight, this_lane());
}

__global__ void __launch_bounds__(block_threads) pack_kernel(Bucket bucket, double weight, bool adds) {
  pack(bucket, weight, adds, this_lane());
}

__global__ void __launch_bounds__(block_threads)
    unpack_kernel(Bucket bucket, const double* weight, Range own, double* squares) {
  const double factor = weight == nullptr ? 1 : 1 / *weight;
  const double sum = sum_of_block(unpack(bucket, factor, own, this_lane()));
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
__device__ void add_number(unsigned long long* numbers, int which, std::uint64_t number) {
  if (number != 0) atomicAdd(numbers + which, static_cast<unsigned long long>(number));
}

/// Sums integers, so the order of the atomics does not change the result.
__global__ void __launch_bounds__(block_threads)
    unpack_exactly_kernel(Bucket bucket, const double* weight, Range own, ExactSquares* squares) {
  __shared__ unsigned long long sums[ExactSquares::numbers];
  for (unsigned i = threadIdx.x; i < ExactSquares::numbers; i += block_threads) sums[i] = 0;
  __syncthreads();
  const double factor = weight == nullptr ? 1 : 1 / *weight;
  unpack_exactly(bucket, factor, own, this_lane(),
                 [&](int which, std::uint64_t number) { add_number(sums, which, number); });
  __syncthreads();
  for (unsigned i = threadIdx.x; i < ExactSquares::numbers; i += block_threads) {
    add_number(reinterpret_cast<unsigned long long*>(squares), static_cast<int>(i), sums[i]);
  }
}

__global__ void carry_kernel(ExactSquares* squares, bool has_problem) {
  if (has_problem) ++squares->not_finite;
  carry(*squares);
}

__global__ void add_up_exactly_kernel(ExactSquares* squares, double* sum) {
  carry(*squares);
  *sum = value_of(*squares);
}

__global__ void __launch_bounds__(block_threads)
    add_up_kernel(const double* values, std::uint64_t count, double* sum) {
  double own = 0;
  for (std::uint64_t i = threadIdx.x; i < count; i += block_threads) own += values[i];
  const double all = sum_of_block(own);
  if (threadIdx.x == 0) *sum = all;
}

__global__ void conclude_kernel(const double* weight, const double* squares, bool leave_sums,
                                DeviceOutcome* outcome) {
  *outcome = outcome_of(*weight, *squares, leave_sums);
}

unsigned blocks_for(std::uint64_t count) {
  const std::uint64_t chunk = std::uint64_t{block_threads} * chunk_of_thread;
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>((count + chunk - 1) / chunk, 1, std::uint64_t{4} * unpacking_blocks));
}

template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
            cudaStream_t stream, const Arguments&... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  check_cuda(cudaGetLastError(), name);
}

}  // namespace

void launch_set(double* to, double value, cudaStream_t stream) {
  launch("launch of set", set_kernel, 1, 1, stream, to, value);
}

void launch_take_weight(double* to, double before, const double* given, cudaStream_t stream) {
  launch("launch of take_weight", take_weight_kernel, 1, 1, stream, to, before, given);
}

void launch_add_scaled(float* target, const void* source, DataType type, std::size_t count, double weight,
                       cudaStream_t stream) {
  launch("launch of add_scaled", add_scaled_kernel, blocks_for(count), block_threads, stream, target, source,
         type, count, weight);
}

void launch_pack(const Bucket& bucket, double weight, bool adds, cudaStream_t stream) {
  launch("launch of pack", pack_kernel, blocks_for(bucket.count), block_threads, stream, bucket, weight,
         adds);
}

// Always launches all blocks, because each one must write its sum.
void launch_unpack(const Bucket& bucket, const double* weight, const Range& own, double* squares,
                   cudaStream_t stream) {
  launch("launch of unpack", unpack_kernel, unpacking_blocks, block_threads, stream, bucket, weight, own,
         squares);
}

void launch_unpack_exactly(const Bucket& bucket, const double* weight, const Range& own,
                           ExactSquares* squares, cudaStream_t stream) {
  launch("launch of unpack", unpack_exactly_kernel, unpacking_blocks, block_threads, stream, bucket, weight,
         own, squares);
}

void launch_carry(ExactSquares* squares, bool has_problem, cudaStream_t stream) {
  launch("launch of carry", carry_kernel, 1, 1, stream, squares, has_problem);
}

void launch_add_up(ExactSquares* squares, double* sum, cudaStream_t stream) {
  launch("launch of add_up", add_up_exactly_kernel, 1, 1, stream, squares, sum);
}

void launch_add_up(const double* values, std::size_t count, double* sum, cudaStream_t stream) {
  launch("launch of add_up", add_up_kernel, 1, block_threads, stream, values, count, sum);
}

void launch_conclude(const double* weight, const double* squares, bool leave_sums, DeviceOutcome* outcome,
                     cudaStream_t stream) {
  launch("launch of conclude", conclude_kernel, 1, 1, stream, weight, squares, leave_sums, outcome);
}

cudaError_t load_gradient_kernels() {
  return collectives::device::load_kernels(unpack_exactly_kernel, carry_kernel, add_up_exactly_kernel,
                                           set_kernel, take_weight_kernel, add_scaled_kernel, pack_kernel,
                                           unpack_kernel, add_up_kernel, conclude_kernel);
}

}  // namespace ddl::gradient_pass
