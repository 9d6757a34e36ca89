#pragma once

#include <array>
#include <cstdint>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/update_rules.hpp"

/// The element-wise and small-vector arithmetic of the CPU backend: fp32, one thread. Each function is
/// compiled for several instruction sets, one of which is chosen when the program starts. std::uint16_t are
/// the bits of a bf16.
namespace nmt::cpu {

/// bf16 to fp32, and back to the nearest (ties to even).
void widen(const std::uint16_t* from, float* to, std::int64_t n);
void narrow(const float* from, std::uint16_t* to, std::int64_t n);

void add(float* to, const float* from, std::int64_t n);

/// `to[j] += sum_i x[i * stride + j]`
void add_column_sums(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, float* to);

/// One row of dropout; see Backend::dropout.
void dropout_row(const float* x, float* y, std::int64_t cols, std::array<std::uint32_t, 2> key,
                 std::uint32_t threshold, float scale, std::uint32_t sample, std::uint32_t position,
                 std::uint32_t first_column_block);

/// One row of an LSTM step; see Backend::LstmStep. gates is [4 * units]; products and output may be null.
void lstm_forward_row(float* gates, const float* products, const float* bias, const float* c_prev, float* c,
                      float* h, float* tanh_c, float* output, std::int64_t units, float forget_bias);
void lstm_forward_row(std::uint16_t* gates, const float* products, const float* bias, const float* c_prev,
                      float* c, std::uint16_t* h, std::uint16_t* tanh_c, std::uint16_t* output,
                      std::int64_t units, float forget_bias);
/// One row of its backward; the gradient of h is d_h plus d_output, which may be null. Replaces gates and
/// d_c.
void lstm_backward_row(float* gates, const float* c_prev, const float* tanh_c, const float* d_output,
                       const float* d_h, float* d_c, std::int64_t units);
void lstm_backward_row(std::uint16_t* gates, const float* c_prev, const std::uint16_t* tanh_c,
                       const std::uint16_t* d_output, const std::uint16_t* d_h, float* d_c,
                       std::int64_t units);

/// Rows begin to end - 1 of Backend::cell_rows.
void cell_rows(CellOperation operation, const CellRows& rows, std::int64_t begin, std::int64_t end);

float dot(const float* a, const float* b, std::int64_t n);
float dot(const float* a, const std::uint16_t* b, std::int64_t n);
/// `y = sum_s a[s] x[s * stride ...]`, n elements.
void weighted_sum(const float* a, std::int64_t count, const float* x, std::int64_t stride, float* y,
                  std::int64_t n);
void weighted_sum(const float* a, std::int64_t count, const std::uint16_t* x, std::int64_t stride, float* y,
                  std::int64_t n);
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

/// 0 if n is 0.
float largest_magnitude(const float* x, std::int64_t n);
float largest_magnitude(const std::uint16_t* x, std::int64_t n);

struct RowLoss {
  double negative_log_likelihood;
  double smoothed;
};
/// One row of Backend::softmax_cross_entropy. Unless `scale` is 0, logits become the gradient; with
/// `narrow_gradient`, in bf16, which fill the first half of their memory.
RowLoss cross_entropy_row(float* logits, std::int64_t vocabulary, std::int64_t target, float label_smoothing,
                          float scale, bool narrow_gradient);
void log_softmax_row(float* logits, std::int64_t vocabulary);
/// One row of Backend::best_log_softmax, with k = `count`, but for log-probabilities: until all columns are
/// known, their logits. Behind these: the largest logit, and the sum of exp(logit - largest).
void best_logits_row(const float* logits, std::int64_t columns, std::int64_t first, std::int64_t also,
                     std::int64_t count, double* best);
/// Makes log-probabilities of them.
void best_log_probabilities(std::int64_t count, double* best);

double sum_of_squares(const float* x, std::int64_t n);

struct SquareSums {
  double values, measured;
};
/// Updates all elements of the tensors; returns their sums if the rule measures.
SquareSums update(UpdateRule rule, const UpdateTensors& tensors, const UpdateFactors<float>& factors,
                  bool zero_gradients);

}  // namespace nmt::cpu
