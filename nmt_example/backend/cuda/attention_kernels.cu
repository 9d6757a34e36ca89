#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned row_threads = 512;
constexpr unsigned sum_threads = 128;

__device__ Index sentence_of(const AttentionShape& shape, Index row) {
  return shape.sentence_of_row.size == 0 ? row % shape.sentences : shape.sentence_of_row.data[row];
}

/// sums[s] = the sum over columns u of product(u, source[s * sentences + sentence][u]), a warp for each s. A
/// barrier must follow.
template <typename Product>
__device__ void sum_by_position(const View& source, Index sentences, Index sentence, Index length,
                                const Product& product, float* sums) {
  const unsigned lane = threadIdx.x % 32;
  for (Index s = threadIdx.x / 32; s < length; s += blockDim.x / 32) {
    const Index row = s * sentences + sentence;
    float sum = 0;
    for (Index u = lane; u < source.cols; u += 32) sum += product(u, source(row, u));
    sum = reduce_warp(sum, Add{});
    if (lane == 0) sums[s] = sum;
  }
}

/// A block computes a row: scores, their softmax, and the sum of the memory that it weights.
__global__ void attention_forward_kernel(AttentionShape shape, const float* v, const float* scale, View query,
                                         View keys, View memory, const std::int32_t* lengths, View weights,
                                         View context) {
  __shared__ float w[most_source_steps];
  const Index r = blockIdx.x;
  const Index sentence = sentence_of(shape, r);
  const Index length = lengths[sentence];
  if (v != nullptr) {
    sum_by_position(
        keys, shape.sentences, sentence, length,
        [&](Index u, float key) { return v[u] * tanhf(query(r, u) + key); }, w);
  } else {
    sum_by_position(
        keys, shape.sentences, sentence, length, [&](Index u, float key) { return query(r, u) * key; }, w);
  }
  __syncthreads();
  const float factor = v == nullptr && scale != nullptr ? *scale : 1.0f;
  float largest = -INFINITY;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) largest = fmaxf(largest, factor * w[s]);
  largest = block_max(largest);
  float sum = 0;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) {
    w[s] = expf(factor * w[s] - largest);
    sum += w[s];
  }
  sum = block_sum(sum);
  for (Index s = threadIdx.x; s < shape.source_steps; s += blockDim.x) {
    const float weight = s < length ? w[s] / sum : 0.0f;
    w[s] = weight;
    weights.set(r, s, weight);
  }
  __syncthreads();
  for (Index c = threadIdx.x; c < context.cols; c += blockDim.x) {
    float total = 0;
    for (Index s = 0; s < length; ++s) total += w[s] * memory(s * shape.sentences + sentence, c);
    context.set(r, c, total);
  }
}

/// A block computes the gradients of a row's scores, and of its query.
__global__ void attention_backward_kernel(AttentionShape shape, const float* v, const float* scale,
                                          View query, View keys, View memory, const std::int32_t* lengths,
                                          View weights, View d_context, View d_scores, View d_query) {
  __shared__ float d[most_source_steps];
  const Index r = blockIdx.x;
  const Index sentence = sentence_of(shape, r);
  const Index length = lengths[sentence];
  sum_by_position(
      memory, shape.sentences, sentence, length,
      [&](Index u, float of_memory) { return d_context(r, u) * of_memory; }, d);
  __syncthreads();
  float mean = 0;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) mean += weights(r, s) * d[s];
  mean = block_sum(mean);
  for (Index s = threadIdx.x; s < shape.source_steps; s += blockDim.x) {
    const float gradient = s < length ? weights(r, s) * (d[s] - mean) : 0.0f;
    d[s] = gradient;
    d_scores.set(r, s, gradient);
  }
  __syncthreads();
  const float factor = v == nullptr && scale != nullptr ? *scale : 1.0f;
  for (Index c = threadIdx.x; c < d_query.cols; c += blockDim.x) {
    const float q = v != nullptr ? query(r, c) : 0.0f;
    float sum = 0;
    for (Index s = 0; s < length; ++s) {
      const float key = keys(s * shape.sentences + sentence, c);
      const float t = v != nullptr ? tanhf(q + key) : 0.0f;
      sum += d[s] * (v != nullptr ? 1.0f - t * t : key);
    }
    d_query.set(r, c, sum * (v != nullptr ? v[c] : factor));
  }
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
  d_keys.set(position, column, of_key * v[column]);
  d_v.set(position, column, of_v);
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
    d_keys.set(r, c, gradient * factor);
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

void attention_forward(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                       const Tensor& query, const Tensor& keys, const Tensor& memory, const Indices& lengths,
                       const Tensor& weights, const Tensor& context) {
  if (query.rows == 0) return;
  launch_kernel(stream, attention_forward_kernel, static_cast<unsigned>(query.rows), row_threads, shape,
                score.v.as<float>(), score.scale.as<float>(), query, keys, memory, lengths.data, weights,
                context);
}

void attention_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                        const Tensor& query, const Tensor& keys, const Tensor& memory, const Indices& lengths,
                        const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                        const Tensor& d_query) {
  if (weights.rows == 0) return;
  launch_kernel(stream, attention_backward_kernel, static_cast<unsigned>(weights.rows), row_threads, shape,
                score.v.as<float>(), score.scale.as<float>(), query, keys, memory, lengths.data, weights,
                d_context, d_scores, d_query);
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

void attention_scale_backward(cudaStream_t stream, const Tensor& keys, const Tensor& scale,
                              const Tensor& d_keys, const Tensor& d_scale, double* scratch) {
  if (keys.rows == 0) return;
  launch_kernel(stream, scale_rows_kernel, static_cast<unsigned>(keys.rows), block_threads, keys,
                scale.as<float>(), d_keys, scratch);
  launch_kernel(stream, add_total_kernel, 1, row_threads, scratch, keys.rows, d_scale.as<float>());
}

}  // namespace nmt::cuda
