#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned score_threads = 512;
constexpr unsigned sum_threads = 128;

__device__ Index sentence_of(const AttentionShape& shape, Index row) {
  return row % (shape.sentences * shape.queries_per_sentence) / shape.queries_per_sentence;
}

/// scores[s] = query . source[s * sentences + sentence], a warp for each s. A barrier must follow.
__device__ void dot_with_source(const float* query, const View& source, Index sentences, Index sentence,
                                Index length, float factor, float* scores) {
  const unsigned lane = threadIdx.x % 32;
  for (Index s = threadIdx.x / 32; s < length; s += blockDim.x / 32) {
    const float* const row = source.row(s * sentences + sentence);
    float sum = 0;
    for (Index u = lane; u < source.cols; u += 32) sum += query[u] * row[u];
    sum = reduce_warp(sum, Add{});
    if (lane == 0) scores[s] = factor * sum;
  }
}

__global__ void attention_weights_kernel(AttentionShape shape, View query, View keys,
                                         const std::int32_t* lengths, const float* scale, View weights) {
  const Index r = blockIdx.x;
  const Index sentence = sentence_of(shape, r);
  const Index length = lengths[sentence];
  float* const w = weights.row(r);
  dot_with_source(query.row(r), keys, shape.sentences, sentence, length, scale != nullptr ? *scale : 1.0f, w);
  __syncthreads();
  float largest = -INFINITY;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) largest = fmaxf(largest, w[s]);
  largest = block_max(largest);
  float sum = 0;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) {
    w[s] = expf(w[s] - largest);
    sum += w[s];
  }
  sum = block_sum(sum);
  for (Index s = threadIdx.x; s < shape.source_steps; s += blockDim.x) w[s] = s < length ? w[s] / sum : 0.0f;
}

__global__ void attention_sum_kernel(AttentionShape shape, View weights, View source,
                                     const std::int32_t* lengths, const float* scale, View out) {
  const Index r = blockIdx.x;
  const Index column = Index{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= out.cols) return;
  const Index sentence = sentence_of(shape, r);
  const Index length = lengths[sentence];
  const float* const w = weights.row(r);
  float sum = 0;
  for (Index s = 0; s < length; ++s) sum += w[s] * source(s * shape.sentences + sentence, column);
  out(r, column) = scale != nullptr ? *scale * sum : sum;
}

__global__ void attention_score_gradients_kernel(AttentionShape shape, View memory,
                                                 const std::int32_t* lengths, View weights, View d_context,
                                                 View d_scores) {
  const Index r = blockIdx.x;
  const Index sentence = sentence_of(shape, r);
  const Index length = lengths[sentence];
  const float* const w = weights.row(r);
  float* const d = d_scores.row(r);
  dot_with_source(d_context.row(r), memory, shape.sentences, sentence, length, 1.0f, d);
  __syncthreads();
  float mean = 0;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) mean += w[s] * d[s];
  mean = block_sum(mean);
  for (Index s = threadIdx.x; s < shape.source_steps; s += blockDim.x)
    d[s] = s < length ? w[s] * (d[s] - mean) : 0.0f;
}

__global__ void scale_rows_kernel(View keys, const float* scale, View d_keys, double* row_sums) {
  const Index r = blockIdx.x;
  const float factor = *scale;
  double sum = 0;
  for (Index c = threadIdx.x; c < keys.cols; c += blockDim.x) {
    const float gradient = d_keys(r, c);
    sum += static_cast<double>(gradient) * static_cast<double>(keys(r, c));
    d_keys(r, c) = gradient * factor;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) row_sums[r] = sum;
}

__global__ void add_total_kernel(const double* values, Index count, float* to) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += values[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *to = static_cast<float>(static_cast<double>(*to) + sum);
}

}  // namespace

void attention_weights(cudaStream_t stream, const AttentionShape& shape, const Tensor& query,
                       const Tensor& keys, const Indices& lengths, const Tensor& scale,
                       const Tensor& weights) {
  if (query.rows == 0) return;
  attention_weights_kernel<<<static_cast<unsigned>(query.rows), score_threads, 0, stream>>>(
      shape, query, keys, lengths.data, scale.as<float>(), weights);
}

void attention_sum(cudaStream_t stream, const AttentionShape& shape, const Tensor& weights,
                   const Tensor& source, const Indices& lengths, const Tensor& scale, const Tensor& out) {
  if (out.empty()) return;
  const Index tiles = (out.cols + sum_threads - 1) / sum_threads;
  const dim3 grid(static_cast<unsigned>(out.rows), static_cast<unsigned>(tiles));
  attention_sum_kernel<<<grid, sum_threads, 0, stream>>>(shape, weights, source, lengths.data,
                                                         scale.as<float>(), out);
}

void attention_score_gradients(cudaStream_t stream, const AttentionShape& shape, const Tensor& memory,
                               const Indices& lengths, const Tensor& weights, const Tensor& d_context,
                               const Tensor& d_scores) {
  if (weights.rows == 0) return;
  attention_score_gradients_kernel<<<static_cast<unsigned>(weights.rows), score_threads, 0, stream>>>(
      shape, memory, lengths.data, weights, d_context, d_scores);
}

void attention_scale_backward(cudaStream_t stream, const Tensor& keys, const Tensor& scale,
                              const Tensor& d_keys, const Tensor& d_scale, double* scratch) {
  if (keys.rows == 0) return;
  scale_rows_kernel<<<static_cast<unsigned>(keys.rows), block_threads, 0, stream>>>(keys, scale.as<float>(),
                                                                                    d_keys, scratch);
  add_total_kernel<<<1, score_threads, 0, stream>>>(scratch, keys.rows, d_scale.as<float>());
}

}  // namespace nmt::cuda
