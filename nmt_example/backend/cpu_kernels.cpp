#include "nmt_example/backend/cpu_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "nmt_example/backend/cpu_math.hpp"
#include "nmt_example/backend/philox.hpp"

namespace nmt::cpu {
namespace {

NMT_INLINE float row_max(const float* x, std::int64_t n) noexcept {
  float largest = x[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}

}  // namespace

NMT_VECTORIZED void add(float* to, const float* from, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

NMT_VECTORIZED void add_column_sums(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                    float* to) {
  constexpr std::int64_t block = 256;
  for (std::int64_t begin = 0; begin < cols; begin += block) {
    const std::int64_t width = std::min(block, cols - begin);
    float sums[block] = {};
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* row = x + i * stride + begin;
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) sums[j] += row[j];
    }
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) to[begin + j] += sums[j];
  }
}

NMT_VECTORIZED void dropout_row(const float* x, float* y, std::int64_t cols, std::array<std::uint32_t, 2> key,
                                std::uint32_t threshold, float scale, std::uint32_t sample,
                                std::uint32_t position, std::uint32_t first_column_block) {
  constexpr int lanes = 16;
  for (std::int64_t begin = 0; begin < cols; begin += 4 * lanes) {
    std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
    const auto block = first_column_block + static_cast<std::uint32_t>(begin / 4);
#pragma omp simd
    for (int l = 0; l < lanes; ++l) {
      const std::array<std::uint32_t, 4> words =
          dropout_words(key, sample, position, block + static_cast<std::uint32_t>(l));
      c0[l] = words[0];
      c1[l] = words[1];
      c2[l] = words[2];
      c3[l] = words[3];
    }
    float mask[4 * lanes];
#pragma omp simd
    for (int l = 0; l < lanes; ++l) {
      mask[4 * l + 0] = c0[l] < threshold ? 0.0f : scale;
      mask[4 * l + 1] = c1[l] < threshold ? 0.0f : scale;
      mask[4 * l + 2] = c2[l] < threshold ? 0.0f : scale;
      mask[4 * l + 3] = c3[l] < threshold ? 0.0f : scale;
    }
    const std::int64_t width = std::min<std::int64_t>(4 * lanes, cols - begin);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) y[begin + j] = x[begin + j] * mask[j];
  }
}

NMT_VECTORIZED void lstm_forward_row(float* gates, const float* bias, const float* c_prev, float* c, float* h,
                                     float* tanh_c, float* output, std::int64_t units, float forget_bias) {
  float* const gi = gates;
  float* const gj = gates + units;
  float* const gf = gates + 2 * units;
  float* const go = gates + 3 * units;
#pragma omp simd
  for (std::int64_t k = 0; k < units; ++k) {
    const float i = sigmoid(gi[k] + bias[k]);
    const float j = tanh_approx(gj[k] + bias[units + k]);
    const float f = sigmoid(gf[k] + bias[2 * units + k] + forget_bias);
    const float o = sigmoid(go[k] + bias[3 * units + k]);
    const float cell = c_prev[k] * f + i * j;
    const float t = tanh_approx(cell);
    gi[k] = i;
    gj[k] = j;
    gf[k] = f;
    go[k] = o;
    c[k] = cell;
    tanh_c[k] = t;
    h[k] = o * t;
  }
  if (output != nullptr && output != h) std::copy(h, h + units, output);
}

NMT_VECTORIZED void lstm_backward_row(float* gates, const float* c_prev, const float* tanh_c,
                                      const float* d_h, float* d_c, std::int64_t units) {
  float* const gi = gates;
  float* const gj = gates + units;
  float* const gf = gates + 2 * units;
  float* const go = gates + 3 * units;
#pragma omp simd
  for (std::int64_t k = 0; k < units; ++k) {
    const float i = gi[k], j = gj[k], f = gf[k], o = go[k], t = tanh_c[k];
    const float d_cell = d_c[k] + d_h[k] * o * (1.0f - t * t);
    gi[k] = d_cell * j * i * (1.0f - i);
    gj[k] = d_cell * i * (1.0f - j * j);
    gf[k] = d_cell * c_prev[k] * f * (1.0f - f);
    go[k] = d_h[k] * t * o * (1.0f - o);
    d_c[k] = d_cell * f;
  }
}

NMT_VECTORIZED float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

NMT_VECTORIZED void weighted_sum(const float* a, std::int64_t count, const float* x, std::int64_t stride,
                                 float* y, std::int64_t n) {
  constexpr std::int64_t block = 64;
  std::int64_t begin = 0;
  for (; begin + block <= n; begin += block) {
    float sums[block] = {};
    for (std::int64_t s = 0; s < count; ++s) {
      const float weight = a[s];
      const float* row = x + s * stride + begin;
#pragma omp simd
      for (std::int64_t j = 0; j < block; ++j) sums[j] += weight * row[j];
    }
    std::copy(sums, sums + block, y + begin);
  }
  for (; begin < n; ++begin) {
    float sum = 0.0f;
    for (std::int64_t s = 0; s < count; ++s) sum += a[s] * x[s * stride + begin];
    y[begin] = sum;
  }
}

NMT_VECTORIZED void axpy(float a, const float* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

NMT_VECTORIZED float additive_score(const float* query, const float* key, const float* v, std::int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += v[i] * tanh_approx(query[i] + key[i]);
  return sum;
}

NMT_VECTORIZED void additive_backward(float d_score, const float* query, const float* key, const float* v,
                                      float* d_query, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float t = tanh_approx(query[i] + key[i]);
    d_query[i] += d_score * v[i] * (1.0f - t * t);
  }
}

NMT_VECTORIZED void additive_memory_backward(float d_score, const float* query, const float* key,
                                             const float* v, float* d_key, float* d_v, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float t = tanh_approx(query[i] + key[i]);
    d_key[i] += d_score * v[i] * (1.0f - t * t);
    d_v[i] += d_score * t;
  }
}

NMT_VECTORIZED void softmax(float* x, std::int64_t n) {
  const float largest = row_max(x, n);
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = exp_approx(x[i] - largest);
    sum += x[i];
  }
  const float scale = 1.0f / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
}

NMT_VECTORIZED RowLoss cross_entropy_row(float* logits, std::int64_t vocabulary, std::int64_t target,
                                         float label_smoothing, bool gradient) {
  const float largest = row_max(logits, vocabulary);
  const float target_logit = logits[target] - largest;
  float sum = 0.0f;
  float logit_sum = 0.0f;
#pragma omp simd reduction(+ : sum, logit_sum)
  for (std::int64_t i = 0; i < vocabulary; ++i) {
    const float shifted = logits[i] - largest;
    const float e = exp_approx(shifted);
    logits[i] = e;
    sum += e;
    logit_sum += shifted;
  }
  const double log_sum = std::log(static_cast<double>(sum));
  const double nll = log_sum - target_logit;
  const double uniform = log_sum - static_cast<double>(logit_sum) / static_cast<double>(vocabulary);
  const RowLoss loss{nll,
                     label_smoothing > 0 ? (1.0 - label_smoothing) * nll + label_smoothing * uniform : nll};
  if (gradient) {
    const float scale = 1.0f / sum;
    const float floor = label_smoothing / static_cast<float>(vocabulary);
#pragma omp simd
    for (std::int64_t i = 0; i < vocabulary; ++i) logits[i] = logits[i] * scale - floor;
    logits[target] -= 1.0f - label_smoothing;
  }
  return loss;
}

NMT_VECTORIZED void log_softmax_row(float* logits, std::int64_t vocabulary) {
  const float largest = row_max(logits, vocabulary);
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < vocabulary; ++i) sum += exp_approx(logits[i] - largest);
  const float log_sum = std::log(sum);
#pragma omp simd
  for (std::int64_t i = 0; i < vocabulary; ++i) logits[i] = (logits[i] - largest) - log_sum;
}

NMT_VECTORIZED double sum_of_squares(const float* x, std::int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace nmt::cpu
