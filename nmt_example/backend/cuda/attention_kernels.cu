#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned row_threads = 512;  // at most

/// What rows of queries attend to.
template <typename T>
struct Attention {
  AttentionShape shape;
  Matrix<float> v;  // missing, and the scale null, where scores have none
  const float* scale;
  Matrix<T> query, keys, memory;
  const std::int32_t* lengths;
  Index units, depth;
  bool packs;

  Attention(const AttentionShape& of, const AttentionScore& score, const Tensor& queries,
            const Tensor& of_keys, const Tensor& of_memory, const Indices& of_sentences)
      : shape(of),
        v(score.v),
        scale(score.v.data == nullptr ? score.scale.as<float>() : nullptr),
        query(queries),
        keys(of_keys),
        memory(of_memory),
        lengths(of_sentences.data),
        units(of_keys.cols),
        depth(of_memory.cols),
        packs(moves_packs(score.v, queries, of_keys, of_memory)) {}
  [[nodiscard]] __device__ bool additive() const { return v.data != nullptr; }
  [[nodiscard]] __device__ float factor() const { return scale != nullptr ? *scale : 1.0f; }
  [[nodiscard]] __device__ Index sentence_of(Index row) const {
    return shape.sentence_of_row.size == 0 ? row % shape.sentences : shape.sentence_of_row.data[row];
  }
  /// For a row: a warp for each position, and a thread for each column.
  [[nodiscard]] unsigned threads() const {
    return threads_for(std::max({32 * shape.source_steps, units, depth}), row_threads);
  }
};

/// sums[s] = the sum over columns u of product(s * sentences + sentence, u, Width), a warp for each s. A
/// barrier must follow.
template <int width, typename Product>
__device__ void sum_by_position(bool packs, Index cols, Index sentences, Index sentence, Index length,
                                const Product& product, float* sums) {
  const unsigned lane = threadIdx.x % 32;
  for (Index s = threadIdx.x / 32; s < length; s += blockDim.x / 32) {
    float sum = 0;
    for (Index begin = 0; begin < cols; begin += 32 * width) {
      for_pack<width>(packs, begin, lane, 32, cols,
                      [&](Index u, auto n) { sum += product(s * sentences + sentence, u, n); });
    }
    sum = reduce_warp(sum, Add{});
    if (lane == 0) sums[s] = sum;
  }
}

template <int n>
__device__ float dot(const Pack<float, n>& a, const Pack<float, n>& b) {
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[k] * b[k];
  return sum;
}

/// A block computes a row: scores, their softmax, and the sum of the memory that it weights.
template <typename T>
__global__ void attention_forward_kernel(Attention<T> all, Matrix<T> weights, Matrix<T> context) {
  __shared__ float w[most_source_steps];
  const Index r = blockIdx.x, sentences = all.shape.sentences;
  const Index sentence = all.sentence_of(r);
  const Index length = all.lengths[sentence];
  const auto score = [&](Index row, Index u, auto n) {
    const auto query = all.query.load(r, u, n), key = all.keys.load(row, u, n);
    if (!all.additive()) return dot(query, key);
    const auto v = all.v.load(0, u, n);
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += v[k] * tanhf(query[k] + key[k]);
    return sum;
  };
  sum_by_position<pack_width<T>>(all.packs, all.units, sentences, sentence, length, score, w);
  __syncthreads();
  const float factor = all.factor();
  float largest = -INFINITY;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) largest = fmaxf(largest, factor * w[s]);
  largest = block_max(largest);
  float sum = 0;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) {
    w[s] = expf(factor * w[s] - largest);
    sum += w[s];
  }
  sum = block_sum(sum);
  for (Index s = threadIdx.x; s < all.shape.source_steps; s += blockDim.x) {
    const float weight = s < length ? w[s] / sum : 0.0f;
    w[s] = weight;
    weights.set(r, s, weight);
  }
  __syncthreads();
  for_columns<pack_width<T>>(all.packs, all.depth, [&](Index c, auto n) {
    Pack<float, n> total{};
    for (Index s = 0; s < length; ++s) {
      const auto memory = all.memory.load(s * sentences + sentence, c, n);
      for (int k = 0; k < n; ++k) total[k] += w[s] * memory[k];
    }
    context.store(r, c, total);
  });
}

/// A block computes the gradients of a row's scores, and of its query.
template <typename T>
__global__ void attention_backward_kernel(Attention<T> all, Matrix<T> weights, Matrix<T> d_context,
                                          Matrix<T> d_scores, Matrix<T> d_query) {
  __shared__ float d[most_source_steps];
  const Index r = blockIdx.x, sentences = all.shape.sentences;
  const Index sentence = all.sentence_of(r);
  const Index length = all.lengths[sentence];
  const auto of_weight = [&](Index row, Index c, auto n) {
    return dot(d_context.load(r, c, n), all.memory.load(row, c, n));
  };
  sum_by_position<pack_width<T>>(all.packs, all.depth, sentences, sentence, length, of_weight, d);
  __syncthreads();
  float mean = 0;
  for (Index s = threadIdx.x; s < length; s += blockDim.x) mean += weights(r, s) * d[s];
  mean = block_sum(mean);
  for (Index s = threadIdx.x; s < all.shape.source_steps; s += blockDim.x) {
    const float gradient = s < length ? weights(r, s) * (d[s] - mean) : 0.0f;
    d[s] = gradient;
    d_scores.set(r, s, gradient);
  }
  __syncthreads();
  const float factor = all.factor();
  for_columns<pack_width<T>>(all.packs, all.units, [&](Index c, auto n) {
    Pack<float, n> sum{}, query{}, v{};
    if (all.additive()) {
      query = all.query.load(r, c, n);
      v = all.v.load(0, c, n);
    }
    for (Index s = 0; s < length; ++s) {
      const auto key = all.keys.load(s * sentences + sentence, c, n);
      for (int k = 0; k < n; ++k) {
        const float t = all.additive() ? tanhf(query[k] + key[k]) : 0.0f;
        sum[k] += d[s] * (all.additive() ? 1.0f - t * t : key[k]);
      }
    }
    for (int k = 0; k < n; ++k) sum[k] *= all.additive() ? v[k] : factor;
    d_query.store(r, c, sum);
  });
}

template <typename T>
void additive_memory_backward(cudaStream_t stream, const Attention<T>& all, Index rows, const Tensor& keys,
                              const Tensor& of_scores, const Tensor& of_keys, const Tensor& of_v) {
  const Matrix<T> d_scores(of_scores), d_keys(of_keys);
  const Matrix<float> d_v(of_v);
  for_each_pack<pack_width<T>>(stream, keys.rows, keys.cols, all.packs && moves_packs(of_keys, of_v),
                               [=] __device__(Index position, Index c, auto n) {
                                 const Index sentences = all.shape.sentences, sentence = position % sentences,
                                             s = position / sentences;
                                 const auto key = all.keys.load(position, c, n), v = all.v.load(0, c, n);
                                 Pack<float, n> key_sums{}, v_sums{};
                                 for (Index r = sentence; s < all.lengths[sentence] && r < rows;
                                      r += sentences) {
                                   const auto query = all.query.load(r, c, n);
                                   const float d_score = d_scores(r, s);
                                   for (int k = 0; k < n; ++k) {
                                     const float t = tanhf(query[k] + key[k]);
                                     key_sums[k] += d_score * (1.0f - t * t);
                                     v_sums[k] += d_score * t;
                                   }
                                 }
                                 for (int k = 0; k < n; ++k) key_sums[k] *= v[k];
                                 d_keys.store(position, c, key_sums);
                                 d_v.store(position, c, v_sums);
                               });
}

__global__ void scaled_direction_kernel(const float* v, Index cols, const float* g, float* out) {
  float squares = 0;
  for (Index c = threadIdx.x; c < cols; c += blockDim.x) squares += v[c] * v[c];
  const float factor = *g / sqrtf(block_sum(squares));
  for (Index c = threadIdx.x; c < cols; c += blockDim.x) out[c] = factor * v[c];
}

__global__ void scaled_direction_backward_kernel(const float* v, Index cols, const float* g,
                                                 const float* d_out, View d_v, View d_g) {
  float squares = 0, products = 0;
  for (Index c = threadIdx.x; c < cols; c += blockDim.x) {
    squares += v[c] * v[c];
    products += v[c] * d_out[c];
  }
  const float length = sqrtf(block_sum(squares));
  const float along = block_sum(products) / length;
  if (threadIdx.x == 0) d_g.set(0, 0, d_g(0, 0) + along);
  for (Index c = threadIdx.x; c < cols; c += blockDim.x)
    d_v.set(0, c, d_v(0, c) + *g / length * (d_out[c] - along * v[c] / length));
}

template <typename T>
__global__ void scale_rows_kernel(Matrix<T> keys, Index cols, bool packs, const float* scale,
                                  Matrix<T> d_keys, double* row_sums) {
  const Index r = blockIdx.x;
  const float factor = *scale;
  double sum = 0;
  for_columns<pack_width<T>>(packs, cols, [&](Index c, auto n) {
    const auto key = keys.load(r, c, n);
    auto gradient = d_keys.load(r, c, n);
    for (int k = 0; k < n; ++k) {
      sum += static_cast<double>(gradient[k]) * static_cast<double>(key[k]);
      gradient[k] *= factor;
    }
    d_keys.store(r, c, gradient);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) row_sums[r] = sum;
}

__global__ void add_total_kernel(const double* values, Index count, View to) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += values[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) to.set(0, 0, static_cast<float>(static_cast<double>(to(0, 0)) + sum));
}

}  // namespace

void attention_forward(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                       const Tensor& query, const Tensor& keys, const Tensor& memory, const Indices& lengths,
                       const Tensor& weights, const Tensor& context) {
  if (query.rows == 0) return;
  with_type(query.type, [&]<typename T>(T) {
    Attention<T> all(shape, score, query, keys, memory, lengths);
    all.packs = all.packs && moves_packs(context);
    launch_kernel(stream, attention_forward_kernel<T>, static_cast<unsigned>(query.rows), all.threads(), all,
                  weights, context);
  });
}

void attention_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                        const Tensor& query, const Tensor& keys, const Tensor& memory, const Indices& lengths,
                        const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                        const Tensor& d_query) {
  if (weights.rows == 0) return;
  with_type(weights.type, [&]<typename T>(T) {
    Attention<T> all(shape, score, query, keys, memory, lengths);
    all.packs = all.packs && moves_packs(d_context, d_query);
    launch_kernel(stream, attention_backward_kernel<T>, static_cast<unsigned>(weights.rows), all.threads(),
                  all, weights, d_context, d_scores, d_query);
  });
}

void additive_memory_backward(cudaStream_t stream, const AttentionShape& shape, const Tensor& v,
                              const Tensor& query, const Tensor& keys, const Indices& lengths,
                              const Tensor& d_scores, const Tensor& d_keys, const Tensor& d_v) {
  with_type(keys.type, [&]<typename T>(T) {
    const Attention<T> all(shape, {.v = v}, query, keys, {}, lengths);
    additive_memory_backward<T>(stream, all, query.rows, keys, d_scores, d_keys, d_v);
  });
}

void scaled_direction(cudaStream_t stream, const Tensor& v, const Tensor& g, const Tensor& out) {
  launch_kernel(stream, scaled_direction_kernel, 1, block_threads, v.as<float>(), v.cols, g.as<float>(),
                out.as<float>());
}

void scaled_direction_backward(cudaStream_t stream, const Tensor& v, const Tensor& g, const Tensor& d_out,
                               const Tensor& d_v, const Tensor& d_g) {
  launch_kernel(stream, scaled_direction_backward_kernel, 1, block_threads, v.as<float>(), v.cols,
                g.as<float>(), d_out.as<float>(), d_v, d_g);
}

void attention_scale_backward(cudaStream_t stream, const Tensor& keys, const Tensor& scale,
                              const Tensor& d_keys, const Tensor& d_scale, double* scratch) {
  if (keys.rows == 0) return;
  with_type(keys.type, [&]<typename T>(T) {
    launch_kernel(stream, scale_rows_kernel<T>, static_cast<unsigned>(keys.rows), block_threads, keys,
                  keys.cols, moves_packs(keys, d_keys), scale.as<float>(), d_keys, scratch);
  });
  launch_kernel(stream, add_total_kernel, 1, threads_for(keys.rows, row_threads), scratch, keys.rows,
                d_scale);
}

}  // namespace nmt::cuda
