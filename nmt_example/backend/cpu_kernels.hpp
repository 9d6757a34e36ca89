#pragma once

#include <array>
#include <cstdint>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/update_rules.hpp"

/// The element-wise and small-vector arithmetic of the CPU backend: fp32, one thread. Each function is
/// compiled for several instruction sets, one of which is chosen when the program starts.
namespace nmt::cpu {

void add(float* to, const float* from, std::int64_t n);

/// `to[j] += sum_i x[i * stride + j]`
void add_column_sums(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, float* to);

/// One row of dropout; see Backend::dropout.
void dropout_row(const float* x, float* y, std::int64_t cols, std::array<std::uint32_t, 2> key,
                 std::uint32_t threshold, float scale, std::uint32_t sample, std::uint32_t position,
                 std::uint32_t first_column_block);

/// One row of an LSTM step; see Backend::LstmStep. gates is [4 * units].
void lstm_forward_row(float* gates, const float* bias, const float* c_prev, float* c, float* h, float* tanh_c,
                      float* output, std::int64_t units, float forget_bias);
/// One row of its backward; `d_h` is the whole gradient of h. Replaces gates and d_c.
void lstm_backward_row(float* gates, const float* c_prev, const float* tanh_c, const float* d_h, float* d_c,
                       std::int64_t units);

/// Rows begin to end - 1 of Backend::cell_rows.
void cell_rows(CellOperation operation, const CellRows& rows, std::int64_t begin, std::int64_t end);

float dot(const float* a, const float* b, std::int64_t n);
/// `y = sum_s a[s] x[s * stride ...]`, n elements.
void weighted_sum(const float* a, std::int64_t count, const float* x, std::int64_t stride, float* y,
                  std::int64_t n);
/// `y += a x`
void axpy(float a, const float* x, float* y, std::int64_t n);
/// `v . tanh(query + key)`
float additive_score(const float* query, const float* key, const float* v, std::int64_t n);
/// Adds the gradient of the query, which is also the key's, from that of such a score.
void additive_backward(float d_score, const float* query, const float* key, const float* v, float* d_query,
                       std::int64_t n);
/// Adds those of the key and of v.
void additive_memory_backward(float d_score, const float* query, const float* key, const float* v,
                              float* d_key, float* d_v, std::int64_t n);
/// In place; n >= 1.
void softmax(float* x, std::int64_t n);

struct RowLoss {
  double negative_log_likelihood;
  double smoothed;
};
/// One row of Backend::softmax_cross_entropy.
RowLoss cross_entropy_row(float* logits, std::int64_t vocabulary, std::int64_t target, float label_smoothing,
                          bool gradient);
void log_softmax_row(float* logits, std::int64_t vocabulary);

double sum_of_squares(const float* x, std::int64_t n);

struct SquareSums {
  double values, measured;
};
/// Elements begin to end - 1 of Backend::update, and their sums if the rule measures.
SquareSums update(UpdateRule rule, const UpdateTensors& tensors, const UpdateFactors<float>& factors,
                  bool zero_gradients, std::int64_t begin, std::int64_t end);

}  // namespace nmt::cpu
