#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned score_threads = 512;
constexpr unsigned sum_threads = 128;

__device__ Index sentence_of(const AttentionShape& shape, Index row) {
  return shape.sentence_of_row.size == 0 ? row % shape.sentences : shape.sentence_of_row.data[row];
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

/// scores[s] = v . tanh(query + source[s * sentences + sentence]), likewise.
__device__ void additive_scores(const float* query, const View& source, Index sentences, Index sentence,
                                Index length, const float* v, float* scores) {
  const unsigned lane = threadIdx.x % 32;
  for (Index s = threadIdx.x / 32; s < length; s += blockDim.x / 32) {
    const float* const row = source.row(s * sentences + sentence);
    float sum = 0;
    for (Index u = lane; u < source.cols; u += 32) sum += v[u] * tanhf(query[u] + row[u]);
    sum = reduce_warp(sum, Add{});
    if (lane == 0) scores[s] = sum;
  }
}

__global__ void attention_weights_kernel(AttentionShape shape, const float* v, View query, View keys,
                                         const std::int32_t* lengths, const float* scale, View weights) {
  const Index r = blockIdx.x;
  const Index sentence = sentence_of(shape, r);
  const Index length = lengths[sentence];
  float* const w = weights.row(r);
  if (v != nullptr) {
    additive_scores(query.row(r), keys, shape.sentences, sentence, length, v, w);
  } else {
    dot_with_source(query.row(r), keys, shape.sentences, sentence, length, scale != nullptr ? *scale : 1.0f,
                    w);
  }
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

__global__ void additive_backward_kernel(AttentionShape shape, const float* v, View query, View keys,
                                         const std::int32_t* lengths, View d_scores, View d_query) {
  const Index r = blockIdx.x;
  const Index column = Index{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= keys.cols) return;
  const Index sentence = sentence_of(shape, r);
  const float q = query(r, column);
  float sum = 0;
  for (Index s = 0; s < lengths[sentence]; ++s) {
    const float t = tanhf(q + keys(s * shape.sentences + sentence, column));
    sum += d_scores(r, s) * (1.0f - t * t);
  }
  d_query(r, column) = sum * v[column];
}

__global__ void additive_memory_backward_kernel(AttentionShape shape, const float* v, View query, View keys,
                                                const std::int32_t* lengths, View d_scores, View d_keys,
                                                View d_v) {
  const Index position = blockIdx.x;
  const Index column = Index{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= keys.cols) return;
  const Index sentence = position % shape.sentences, s = position / shape.sentences;
  const float key = keys(position, column);
  float of_key = 0, of_v = 0;
  for (Index r = sentence; s < lengths[sentence] && r < query.rows; r += shape.sentences) {
    const float t = tanhf(query(r, column) + key);
    of_key += d_scores(r, s) * (1.0f - t * t);
    of_v += d_scores(r, s) * t;
  }
  d_keys(position, column) = of_key * v[column];
  d_v(position, column) = of_v;
}

__global__ void scaled_direction_kernel(View v, const float* g, float* out) {
  float squares = 0;
  for (Index c = threadIdx.x; c < v.cols; c += blockDim.x) squares += v(0, c) * v(0, c);
  const float factor = *g / sqrtf(block_sum(squares));
  for (Index c = threadIdx.x; c < v.cols; c += blockDim.x) out[c] = factor * v(0, c);
}

__global__ void scaled_direction_backward_kernel(View v, const float* g, const float* d_out, float* d_v,
                                                 float* d_g) {
  float squares = 0, products = 0;
  for (Index c = threadIdx.x; c < v.cols; c += blockDim.x) {
    squares += v(0, c) * v(0, c);
    products += v(0, c) * d_out[c];
  }
  const float length = sqrtf(block_sum(squares));
  const float along = block_sum(products) / length;
  if (threadIdx.x == 0) *d_g += along;
  for (Index c = threadIdx.x; c < v.cols; c += blockDim.x)
    d_v[c] += *g / length * (d_out[c] - along * v(0, c) / length);
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

void attention_weights(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                       const Tensor& query, const Tensor& keys, const Indices& lengths,
                       const Tensor& weights) {
  if (query.rows == 0) return;
  launch_kernel(stream, attention_weights_kernel, static_cast<unsigned>(query.rows), score_threads, shape,
                score.v.as<float>(), query, keys, lengths.data, score.scale.as<float>(), weights);
}

void attention_sum(cudaStream_t stream, const AttentionShape& shape, const Tensor& weights,
                   const Tensor& source, const Indices& lengths, const Tensor& scale, const Tensor& out) {
  if (out.empty()) return;
  const Index tiles = (out.cols + sum_threads - 1) / sum_threads;
  const dim3 grid(static_cast<unsigned>(out.rows), static_cast<unsigned>(tiles));
  launch_kernel(stream, attention_sum_kernel, grid, sum_threads, shape, weights, source, lengths.data,
                scale.as<float>(), out);
}

void additive_backward(cudaStream_t stream, const AttentionShape& shape, const Tensor& v, const Tensor& query,
                       const Tensor& keys, const Indices& lengths, const Tensor& d_scores,
                       const Tensor& d_query) {
  if (d_query.empty()) return;
  const Index tiles = (keys.cols + sum_threads - 1) / sum_threads;
  const dim3 grid(static_cast<unsigned>(d_query.rows), static_cast<unsigned>(tiles));
  launch_kernel(stream, additive_backward_kernel, grid, sum_threads, shape, v.as<float>(), query, keys,
                lengths.data, d_scores, d_query);
}

void additive_memory_backward(cudaStream_t stream, const AttentionShape& shape, const Tensor& v,
                              const Tensor& query, const Tensor& keys, const Indices& lengths,
                              const Tensor& d_scores, const Tensor& d_keys, const Tensor& d_v) {
  if (keys.empty()) return;
  const Index tiles = (keys.cols + sum_threads - 1) / sum_threads;
  const dim3 grid(static_cast<unsigned>(keys.rows), static_cast<unsigned>(tiles));
  launch_kernel(stream, additive_memory_backward_kernel, grid, sum_threads, shape, v.as<float>(), query, keys,
                lengths.data, d_scores, d_keys, d_v);
}

void scaled_direction(cudaStream_t stream, const Tensor& v, const Tensor& g, const Tensor& out) {
  launch_kernel(stream, scaled_direction_kernel, 1, block_threads, v, g.as<float>(), out.as<float>());
}

void scaled_direction_backward(cudaStream_t stream, const Tensor& v, const Tensor& g, const Tensor& d_out,
                               const Tensor& d_v, const Tensor& d_g) {
  launch_kernel(stream, scaled_direction_backward_kernel, 1, block_threads, v, g.as<float>(),
                d_out.as<float>(), d_v.as<float>(), d_g.as<float>());
}

void attention_score_gradients(cudaStream_t stream, const AttentionShape& shape, const Tensor& memory,
                               const Indices& lengths, const Tensor& weights, const Tensor& d_context,
                               const Tensor& d_scores) {
  if (weights.rows == 0) return;
  launch_kernel(stream, attention_score_gradients_kernel, static_cast<unsigned>(weights.rows), score_threads,
                shape, memory, lengths.data, weights, d_context, d_scores);
}

void attention_scale_backward(cudaStream_t stream, const Tensor& keys, const Tensor& scale,
                              const Tensor& d_keys, const Tensor& d_scale, double* scratch) {
  if (keys.rows == 0) return;
  launch_kernel(stream, scale_rows_kernel, static_cast<unsigned>(keys.rows), block_threads, keys,
                scale.as<float>(), d_keys, scratch);
  launch_kernel(stream, add_total_kernel, 1, score_threads, scratch, keys.rows, d_scale.as<float>());
}

}  // namespace nmt::cuda
