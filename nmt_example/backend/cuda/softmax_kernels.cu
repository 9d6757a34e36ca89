#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned row_threads = 512;

__device__ float row_max(const float* x, Index n) {
  float largest = -INFINITY;
  for (Index v = threadIdx.x; v < n; v += blockDim.x) largest = fmaxf(largest, x[v]);
  return block_max(largest);
}

__global__ void cross_entropy_kernel(View logits, const std::int32_t* targets, float label_smoothing,
                                     View gradient, const double* scale, double* row_losses) {
  const Index r = blockIdx.x;
  const Index vocabulary = logits.cols;
  const float* const x = logits.row(r);
  const std::int32_t target = targets[r];
  const float largest = row_max(x, vocabulary);
  float exp_sum = 0, shifted_sum = 0;
  for (Index v = threadIdx.x; v < vocabulary; v += blockDim.x) {
    const float shifted = x[v] - largest;
    exp_sum += expf(shifted);
    shifted_sum += shifted;
  }
  const double sum = block_sum(static_cast<double>(exp_sum));
  const double logit_sum = block_sum(static_cast<double>(shifted_sum));
  if (threadIdx.x == 0) {
    const double log_sum = log(sum);
    const double nll = log_sum - static_cast<double>(x[target] - largest);
    const double uniform = log_sum - logit_sum / static_cast<double>(vocabulary);
    const auto smoothing = static_cast<double>(label_smoothing);
    row_losses[2 * r] = nll;
    row_losses[2 * r + 1] = smoothing > 0 ? (1.0 - smoothing) * nll + smoothing * uniform : nll;
  }
  if (gradient.data == nullptr) return;
  __syncthreads();  // x[target] has been read
  const auto factor = static_cast<float>(1.0 / sum);
  const float of_loss = scale != nullptr ? static_cast<float>(*scale) : 1.0f;
  const float floor = label_smoothing / static_cast<float>(vocabulary);
  for (Index begin = 0; begin < vocabulary; begin += blockDim.x) {
    const Index v = begin + threadIdx.x;
    const bool exists = v < vocabulary;
    const float wanted = v == target ? 1.0f - label_smoothing : 0.0f;
    const float d = exists ? of_loss * (expf(x[v] - largest) * factor - floor - wanted) : 0.0f;
    // A narrow gradient lies where logits of lower columns are, all of which have been read by then.
    if (gradient.type != logits.type) __syncthreads();
    if (exists) gradient.set(r, v, d);
  }
}

__global__ void add_row_losses_kernel(const double* row_losses, Index rows, double* sums) {
  double nll = 0, smoothed = 0;
  for (Index r = threadIdx.x; r < rows; r += blockDim.x) {
    nll += row_losses[2 * r];
    smoothed += row_losses[2 * r + 1];
  }
  nll = block_sum(nll);
  smoothed = block_sum(smoothed);
  if (threadIdx.x != 0) return;
  sums[0] += nll;
  sums[1] += smoothed;
}

__global__ void log_softmax_kernel(View logits) {
  float* const x = logits.row(blockIdx.x);
  const float largest = row_max(x, logits.cols);
  float exp_sum = 0;
  for (Index v = threadIdx.x; v < logits.cols; v += blockDim.x) exp_sum += expf(x[v] - largest);
  const auto log_sum = static_cast<float>(log(block_sum(static_cast<double>(exp_sum))));
  for (Index v = threadIdx.x; v < logits.cols; v += blockDim.x) x[v] = (x[v] - largest) - log_sum;
}

struct MaxKey {
  __device__ unsigned long long operator()(unsigned long long a, unsigned long long b) const {
    return a > b ? a : b;
  }
};

/// Greater for greater values and, if these are equal, for the lower column; neither 0 nor the largest key.
__device__ unsigned long long key_of(float value, Index column) {
  const unsigned bits = __float_as_uint(value);
  const unsigned ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xfffffffeu - static_cast<unsigned>(column));
}

/// Finds the best columns one after the other: each is the best of those that are worse than the one before.
__global__ void best_log_softmax_kernel(View logits, Index also, Index count, double* best, Index stride) {
  const float* const x = logits.row(blockIdx.x);
  double* const found = best + blockIdx.x * stride;
  const float largest = row_max(x, logits.cols);
  float exp_sum = 0;
  for (Index v = threadIdx.x; v < logits.cols; v += blockDim.x) exp_sum += expf(x[v] - largest);
  const auto log_sum = static_cast<float>(log(block_sum(static_cast<double>(exp_sum))));
  unsigned long long before = ~0ull;
  for (Index i = 0; i < count; ++i) {
    unsigned long long key = 0;
    for (Index v = threadIdx.x; v < logits.cols; v += blockDim.x) {
      const unsigned long long other = key_of((x[v] - largest) - log_sum, v);
      if (other < before) key = MaxKey{}(key, other);
    }
    before = reduce_block(key, 0ull, MaxKey{});
    if (threadIdx.x != 0) continue;
    const Index column = 0xfffffffeu - static_cast<unsigned>(before);
    found[i] = static_cast<double>(column);
    found[count + i] = (x[column] - largest) - log_sum;
  }
  if (threadIdx.x == 0) found[2 * count] = (x[also] - largest) - log_sum;
}

}  // namespace

void softmax_cross_entropy(cudaStream_t stream, const Tensor& logits, const Indices& targets,
                           float label_smoothing, const Tensor& gradient, const double* scale,
                           const Tensor& sums, double* scratch) {
  if (logits.rows == 0) return;
  launch_kernel(stream, cross_entropy_kernel, static_cast<unsigned>(logits.rows), row_threads, logits,
                targets.data, label_smoothing, gradient, scale, scratch);
  launch_kernel(stream, add_row_losses_kernel, 1, row_threads, scratch, logits.rows, sums.as<double>());
}

void log_softmax(cudaStream_t stream, const Tensor& logits) {
  if (logits.rows == 0) return;
  launch_kernel(stream, log_softmax_kernel, static_cast<unsigned>(logits.rows), row_threads, logits);
}

void best_log_softmax(cudaStream_t stream, const Tensor& logits, std::int32_t also, const Tensor& best) {
  if (logits.rows == 0) return;
  launch_kernel(stream, best_log_softmax_kernel, static_cast<unsigned>(logits.rows), row_threads, logits,
                also, (best.cols - 3) / 2, best.as<double>(), best.stride);
}

}  // namespace nmt::cuda
