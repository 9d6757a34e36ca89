#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

__global__ void squares_kernel(const float* x, Index count, double* partial) {
  double sum = 0;
  for (Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += Index{gridDim.x} * blockDim.x) {
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void total_kernel(const double* partial, Index count, double* total) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void sum_of_squares(cudaStream_t stream, const Tensor& x, const Tensor& sum, double* scratch) {
  // The number of blocks fixes the order of the sum, so it depends on the size alone.
  const Index blocks = std::min<Index>((x.size() + block_threads - 1) / block_threads,
                                       static_cast<Index>(sum_of_squares_scratch));
  if (blocks > 0) {
    squares_kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(x.as<float>(), x.size(),
                                                                                scratch);
  }
  total_kernel<<<1, block_threads, 0, stream>>>(scratch, blocks, sum.as<double>());
}

void sgd(cudaStream_t stream, const Tensor& parameters, const Tensor& gradients, float factor) {
  float* const p = parameters.as<float>();
  const float* const g = gradients.as<float>();
  for_each(stream, 1, parameters.size(), [=] __device__(Index, Index i) { p[i] -= factor * g[i]; });
}

void adam(cudaStream_t stream, const Tensor& parameters, const Tensor& gradients, const Tensor& m,
          const Tensor& v, const AdamFactors& factors) {
  float* const p = parameters.as<float>();
  const float* const gradient = gradients.as<float>();
  float* const mean = m.as<float>();
  float* const variance = v.as<float>();
  const AdamFactors k = factors;
  for_each(stream, 1, parameters.size(), [=] __device__(Index, Index i) {
    const float g = gradient[i] * k.gradient_scale;
    const float first = k.beta1 * mean[i] + (1.0f - k.beta1) * g;
    const float second = k.beta2 * variance[i] + (1.0f - k.beta2) * g * g;
    mean[i] = first;
    variance[i] = second;
    p[i] -= k.step_size * first / (sqrtf(second) * k.sqrt_v_scale + k.epsilon);
  });
}

}  // namespace nmt::cuda
