#include "nmt_example/backend/cpu_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

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

NMT_INLINE float wide(float x) noexcept { return x; }
NMT_INLINE float wide(std::uint16_t x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

NMT_INLINE void store(float& to, float x) noexcept { to = x; }
NMT_INLINE void store(std::uint16_t& to, float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // A NaN stays one.
  to = static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

template <bool has_products, typename T>
NMT_INLINE void lstm_forward(T* gates, const float* products, const float* bias, const float* c_prev,
                             float* c, T* h, T* tanh_c, T* output, std::int64_t units,
                             float forget_bias) noexcept {
  T* const gi = gates;
  T* const gj = gates + units;
  T* const gf = gates + 2 * units;
  T* const go = gates + 3 * units;
  const auto before = [&](const T* gate, std::int64_t g, std::int64_t k) {
    const float own = wide(gate[k]) + bias[g * units + k];
    return has_products ? own + products[g * units + k] : own;
  };
#pragma omp simd
  for (std::int64_t k = 0; k < units; ++k) {
    const float i = sigmoid(before(gi, 0, k));
    const float j = tanh_approx(before(gj, 1, k));
    const float f = sigmoid(before(gf, 2, k) + forget_bias);
    const float o = sigmoid(before(go, 3, k));
    const float cell = c_prev[k] * f + i * j;
    const float t = tanh_approx(cell);
    store(gi[k], i);
    store(gj[k], j);
    store(gf[k], f);
    store(go[k], o);
    c[k] = cell;
    store(tanh_c[k], t);
    store(h[k], o * t);
  }
  if (output != nullptr && output != h) std::copy(h, h + units, output);
}

template <typename T>
NMT_INLINE void lstm_forward(T* gates, const float* products, const float* bias, const float* c_prev,
                             float* c, T* h, T* tanh_c, T* output, std::int64_t units,
                             float forget_bias) noexcept {
  products != nullptr
      ? lstm_forward<true>(gates, products, bias, c_prev, c, h, tanh_c, output, units, forget_bias)
      : lstm_forward<false>(gates, products, bias, c_prev, c, h, tanh_c, output, units, forget_bias);
}

template <bool has_output, typename T>
NMT_INLINE void lstm_backward(T* gates, const float* c_prev, const T* tanh_c, const T* d_output, const T* d_h,
                              float* d_c, std::int64_t units) noexcept {
  T* const gi = gates;
  T* const gj = gates + units;
  T* const gf = gates + 2 * units;
  T* const go = gates + 3 * units;
#pragma omp simd
  for (std::int64_t k = 0; k < units; ++k) {
    const float i = wide(gi[k]), j = wide(gj[k]), f = wide(gf[k]), o = wide(go[k]), t = wide(tanh_c[k]);
    const float d = has_output ? wide(d_h[k]) + wide(d_output[k]) : wide(d_h[k]);
    const float d_cell = d_c[k] + d * o * (1.0f - t * t);
    store(gi[k], d_cell * j * i * (1.0f - i));
    store(gj[k], d_cell * i * (1.0f - j * j));
    store(gf[k], d_cell * c_prev[k] * f * (1.0f - f));
    store(go[k], d * t * o * (1.0f - o));
    d_c[k] = d_cell * f;
  }
}

template <typename T>
NMT_INLINE void lstm_backward(T* gates, const float* c_prev, const T* tanh_c, const T* d_output, const T* d_h,
                              float* d_c, std::int64_t units) noexcept {
  d_output != nullptr ? lstm_backward<true>(gates, c_prev, tanh_c, d_output, d_h, d_c, units)
                      : lstm_backward<false>(gates, c_prev, tanh_c, d_output, d_h, d_c, units);
}

template <typename T>
NMT_INLINE float dot_of(const float* a, const T* b, std::int64_t n) noexcept {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * wide(b[i]);
  return sum;
}

template <typename T>
NMT_INLINE void weighted_sum_of(const float* a, std::int64_t count, const T* x, std::int64_t stride, float* y,
                                std::int64_t n) noexcept {
  constexpr std::int64_t block = 64;
  std::int64_t begin = 0;
  for (; begin + block <= n; begin += block) {
    float sums[block] = {};
    for (std::int64_t s = 0; s < count; ++s) {
      const float weight = a[s];
      const T* row = x + s * stride + begin;
#pragma omp simd
      for (std::int64_t j = 0; j < block; ++j) sums[j] += weight * wide(row[j]);
    }
    std::copy(sums, sums + block, y + begin);
  }
  for (; begin < n; ++begin) {
    float sum = 0.0f;
    for (std::int64_t s = 0; s < count; ++s) sum += a[s] * wide(x[s * stride + begin]);
    y[begin] = sum;
  }
}

}  // namespace

NMT_VECTORIZED void widen(const std::uint16_t* from, float* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = wide(from[i]);
}

NMT_VECTORIZED void narrow(const float* from, std::uint16_t* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(to[i], from[i]);
}

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
  // The same words as dropout_words gives, for 16 blocks of columns at a time.
  constexpr int lanes = 16;
  for (std::int64_t begin = 0; begin < cols; begin += 4 * lanes) {
    std::uint64_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
    const auto block = first_column_block + static_cast<std::uint32_t>(begin / 4);
#pragma omp simd
    for (int l = 0; l < lanes; ++l) {
      c0[l] = sample;
      c1[l] = position;
      c2[l] = block + static_cast<std::uint32_t>(l);
      c3[l] = 0;
    }
    PhiloxKey round_key = key;
    for (int round = 0; round < philox_rounds; ++round) {
#pragma omp simd
      for (int l = 0; l < lanes; ++l) philox_round(c0[l], c1[l], c2[l], c3[l], round_key);
      philox_next_key(round_key);
    }
    float mask[4 * lanes];
#pragma omp simd
    for (int l = 0; l < lanes; ++l) {
      mask[4 * l + 0] = static_cast<std::uint32_t>(c0[l]) < threshold ? 0.0f : scale;
      mask[4 * l + 1] = static_cast<std::uint32_t>(c1[l]) < threshold ? 0.0f : scale;
      mask[4 * l + 2] = static_cast<std::uint32_t>(c2[l]) < threshold ? 0.0f : scale;
      mask[4 * l + 3] = static_cast<std::uint32_t>(c3[l]) < threshold ? 0.0f : scale;
    }
    const std::int64_t width = std::min<std::int64_t>(4 * lanes, cols - begin);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) y[begin + j] = x[begin + j] * mask[j];
  }
}

NMT_VECTORIZED void lstm_forward_row(float* gates, const float* products, const float* bias,
                                     const float* c_prev, float* c, float* h, float* tanh_c, float* output,
                                     std::int64_t units, float forget_bias) {
  lstm_forward(gates, products, bias, c_prev, c, h, tanh_c, output, units, forget_bias);
}
NMT_VECTORIZED void lstm_forward_row(std::uint16_t* gates, const float* products, const float* bias,
                                     const float* c_prev, float* c, std::uint16_t* h, std::uint16_t* tanh_c,
                                     std::uint16_t* output, std::int64_t units, float forget_bias) {
  lstm_forward(gates, products, bias, c_prev, c, h, tanh_c, output, units, forget_bias);
}
NMT_VECTORIZED void lstm_backward_row(float* gates, const float* c_prev, const float* tanh_c,
                                      const float* d_output, const float* d_h, float* d_c,
                                      std::int64_t units) {
  lstm_backward(gates, c_prev, tanh_c, d_output, d_h, d_c, units);
}
NMT_VECTORIZED void lstm_backward_row(std::uint16_t* gates, const float* c_prev, const std::uint16_t* tanh_c,
                                      const std::uint16_t* d_output, const std::uint16_t* d_h, float* d_c,
                                      std::int64_t units) {
  lstm_backward(gates, c_prev, tanh_c, d_output, d_h, d_c, units);
}

NMT_VECTORIZED float dot(const float* a, const float* b, std::int64_t n) { return dot_of(a, b, n); }
NMT_VECTORIZED float dot(const float* a, const std::uint16_t* b, std::int64_t n) { return dot_of(a, b, n); }

NMT_VECTORIZED void weighted_sum(const float* a, std::int64_t count, const float* x, std::int64_t stride,
                                 float* y, std::int64_t n) {
  weighted_sum_of(a, count, x, stride, y, n);
}
NMT_VECTORIZED void weighted_sum(const float* a, std::int64_t count, const std::uint16_t* x,
                                 std::int64_t stride, float* y, std::int64_t n) {
  weighted_sum_of(a, count, x, stride, y, n);
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

NMT_VECTORIZED float largest_magnitude(const float* x, std::int64_t n) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

NMT_VECTORIZED float largest_magnitude(const std::uint16_t* x, std::int64_t n) {
  // Without their signs, the bits are in the order of the values.
  std::uint16_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i)
    largest = std::max(largest, static_cast<std::uint16_t>(x[i] & 0x7fffU));
  float value = 0;
  widen(&largest, &value, 1);
  return value;
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
                                         float label_smoothing, float scale, bool narrow_gradient) {
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
  if (scale == 0.0f) return loss;
  const float factor = scale / sum;
  const float floor = scale * label_smoothing / static_cast<float>(vocabulary);
  const float wanted = scale * (1.0f - label_smoothing);
  if (!narrow_gradient) {
#pragma omp simd
    for (std::int64_t i = 0; i < vocabulary; ++i) logits[i] = logits[i] * factor - floor;
    logits[target] -= wanted;
    return loss;
  }
  // The target's element is overwritten by others before the end.
  const float of_target = logits[target] * factor - floor - wanted;
  constexpr std::int64_t block = 256;
  std::uint16_t narrow[block];
  auto* const bytes = reinterpret_cast<std::byte*>(logits);
  for (std::int64_t begin = 0; begin < vocabulary; begin += block) {
    const std::int64_t width = std::min(block, vocabulary - begin);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) store(narrow[i], logits[begin + i] * factor - floor);
    if (target >= begin && target < begin + width) store(narrow[target - begin], of_target);
    std::memcpy(bytes + 2 * begin, narrow, static_cast<std::size_t>(2 * width));
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

NMT_VECTORIZED void best_logits_row(const float* logits, std::int64_t columns, std::int64_t first,
                                    std::int64_t also, std::int64_t count, double* best) {
  double* const values = best + count;
  double& largest = best[2 * count + 1];
  double& sum = best[2 * count + 2];
  if (first == 0) {
    largest = -std::numeric_limits<float>::infinity();
    sum = 0;
  }
  std::int64_t found = std::min(first, count);
  constexpr std::int64_t group = 32, groups = 8;
  for (std::int64_t begin = 0; begin < columns; begin += groups * group) {
    const float* const x = logits + begin;
    const std::int64_t width = std::min(groups * group, columns - begin);
    float of_group[groups];
    float of_block = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i * group < width; ++i) {
      of_group[i] = row_max(x + i * group, std::min(group, width - i * group));
      of_block = std::max(of_block, of_group[i]);
    }
    if (of_block > static_cast<float>(largest)) {
      sum *= exp_approx(static_cast<float>(largest) - of_block);
      largest = of_block;
    }
    const auto shift = static_cast<float>(largest);
    float block_sum = 0.0f;
#pragma omp simd reduction(+ : block_sum)
    for (std::int64_t i = 0; i < width; ++i) block_sum += exp_approx(x[i] - shift);
    sum += block_sum;
    // Few groups have a column that is better than the worst found so far.
    for (std::int64_t g = 0; g * group < width && count > 0; ++g) {
      if (found == count && !(of_group[g] > values[count - 1])) continue;
      const std::int64_t end = std::min((g + 1) * group, width);
      for (std::int64_t i = g * group; i < end; ++i) {
        if (found == count && !(x[i] > values[count - 1])) continue;
        std::int64_t place = found < count ? found++ : count - 1;
        for (; place > 0 && x[i] > values[place - 1]; --place) {
          best[place] = best[place - 1];
          values[place] = values[place - 1];
        }
        best[place] = static_cast<double>(first + begin + i);
        values[place] = x[i];
      }
    }
  }
  if (also >= first && also < first + columns) values[count] = logits[also - first];
}

void best_log_probabilities(std::int64_t count, double* best) {
  const auto largest = static_cast<float>(best[2 * count + 1]);
  const auto log_sum = static_cast<float>(std::log(best[2 * count + 2]));
  for (std::int64_t i = count; i <= 2 * count; ++i)
    best[i] = (static_cast<float>(best[i]) - largest) - log_sum;
}

NMT_VECTORIZED double sum_of_squares(const float* x, std::int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace nmt::cpu
