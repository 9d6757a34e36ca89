#include <dnnl.h>
#include <omp.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cpu_kernels.hpp"
#include "nmt_example/backend/cpu_memory.hpp"
#include "nmt_example/backend/cpu_rows.hpp"
#include "nmt_example/backend/log_probability_rows.hpp"
#include "nmt_example/backend/products.hpp"

namespace nmt {
namespace {

/// Null for a tensor without memory.
template <typename T = float>
T* row(const Tensor& x, std::int64_t r) {
  return x.data == nullptr ? nullptr : x.as<T>() + r * x.stride;
}

/// Calls f with an element of the tensor's type: float, or the bits of a bf16.
template <typename F>
void with_element_type(const Tensor& x, const F& f) {
  x.type == ddl::DataType::f32 ? f(float()) : f(std::uint16_t());
}

/// Makes this thread take floats below 2^-126 as 0, as TensorFlow's threads do. Gradients that vanish through
/// time become such subnormal numbers, and Intel's processors multiply them in microcode: steps 51
/// to 100 of --preset=multi30k took 1,359 ms, not 349 to 513.
void flush_subnormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ, of results, and DAZ, of operands
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | (1U << 24)));  // FZ, of both
#endif
}

class CpuBackend final : public Backend {
 public:
  /// The calling thread and those of its team flush subnormal numbers from now on.
  explicit CpuBackend(int threads) : threads_(std::max(threads, 1)) {
    omp_set_num_threads(threads_);
#pragma omp parallel
    flush_subnormals();
  }

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] ddl::DataType type() const override { return ddl::DataType::f32; }
  [[nodiscard]] ddl::DataType narrow_type() const override { return ddl::DataType::bf16; }

  // Memory --------------------------------------------------------------------------------------
  std::shared_ptr<void> allocate(std::size_t bytes) override { return cpu::zeroed_memory(bytes); }
  void upload(const Tensor& to, std::span<const float> from) override {
    for (std::int64_t r = 0; r < to.rows; ++r) {
      const float* const x = from.data() + r * to.cols;
      if (to.type == ddl::DataType::f64) {
        std::copy_n(x, to.cols, to.as<double>() + r * to.stride);
        continue;
      }
      std::copy_n(x, to.cols, rows().write(to, r, 0));
      rows().put(to, r, 0);
    }
  }
  void upload_bytes(void* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void download(const Tensor& from, std::span<float> to) override { download_to(from, to.data()); }
  void download(const Tensor& from, std::span<double> to) override { download_to(from, to.data()); }
  void download_bytes(const void* from, std::span<std::byte> to) override {
    std::memcpy(to.data(), from, to.size());
  }
  void zero(const Tensor& x) override {
    if (x.empty()) return;
    const auto element = static_cast<std::int64_t>(ddl::size_of(x.type));
    const auto clear = [](std::byte* from, std::int64_t bytes) {
      std::memset(from, 0, static_cast<std::size_t>(bytes));
    };
    if (x.contiguous()) {
      return for_rows(x.size(), 1, [&](std::int64_t begin, std::int64_t end) {
        clear(static_cast<std::byte*>(x.data) + begin * element, (end - begin) * element);
      });
    }
    for_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) clear(row_bytes(x, r), x.cols * element);
    });
  }
  void copy(const Tensor& from, const Tensor& to) override {
    for_rows(from.rows, from.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) copy_row(from, r, to, r);
    });
  }
  void add(const Tensor& from, const Tensor& to) override {
    for_rows(from.rows, from.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) add_row_to(from, r, to, r);
    });
  }
  void gather_rows(const Tensor& from, const Indices& ids, const Tensor& to) override {
    for_rows(ids.size, from.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) copy_row(from, ids.data[i], to, i);
    });
  }
  void scatter_rows(const Tensor& from, const Indices& ids, const Tensor& to) override {
    for_rows(ids.size, from.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) copy_row(from, i, to, ids.data[i]);
    });
  }
  void fill_columns_but(const Tensor& x, std::int64_t first, const Indices& kept, double value) override {
    for_rows(x.rows, x.cols - first, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        float* const values = rows().edit(x, r, 0);
        const float keep = values[kept.data[r]];
        std::fill(values + first, values + x.cols, static_cast<float>(value));
        values[kept.data[r]] = keep;
        rows().put(x, r, 0);
      }
    });
  }

  // Dense ---------------------------------------------------------------------------------------
  void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
            const Tensor& c) override {
    const std::int64_t inner = ta == Transpose::yes ? a.rows : a.cols;
    assert((ta == Transpose::yes ? a.cols : a.rows) == c.rows);
    assert((tb == Transpose::yes ? b.rows : b.cols) == c.cols);
    assert((tb == Transpose::yes ? b.cols : b.rows) == inner);
    if (c.empty()) return;
    if (inner == 0) {
      if (!accumulate) zero(c);
      return;
    }
    if (a.type != ddl::DataType::f32) return products_.multiply(ta, tb, a, b, accumulate, c);
    assert(b.type == ddl::DataType::f32 && c.type == ddl::DataType::f32);
    const dnnl_status_t status = dnnl_sgemm(
        ta == Transpose::yes ? 'T' : 'N', tb == Transpose::yes ? 'T' : 'N', c.rows, c.cols, inner, 1.0f,
        a.as<float>(), a.stride, b.as<float>(), b.stride, accumulate ? 1.0f : 0.0f, c.as<float>(), c.stride);
    if (status != dnnl_success) {
      throw ddl::Error(ddl::ErrorCode::internal,
                       "oneDNN's sgemm of " + std::to_string(c.rows) + " x " + std::to_string(inner) + " x " +
                           std::to_string(c.cols) + " failed with status " + std::to_string(status) +
                           (status == dnnl_out_of_memory ? " (out of memory)" : ""));
    }
  }
  void multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                const Tensor& c) override {
    if (a.empty()) return gemm(Transpose::no, tb, a, parameter, accumulate, c);
    // With more rows, oneDNN's sgemm is as fast, but not with a transposed factor; with a small parameter, a
    // call's own cost counts.
    constexpr std::int64_t most_rows = 256, least_elements = 4096;
    const bool plain_is_as_fast =
        (tb == Transpose::no && a.rows > most_rows) || parameter.size() < least_elements;
    if (plain_is_as_fast && a.type == ddl::DataType::f32) {
      return gemm(Transpose::no, tb, a, parameter, accumulate, c);
    }
    products_.multiply_packed(a, tb, parameter, accumulate, c);
  }
  void parameters_changed() override { products_.forget(); }
  [[nodiscard]] std::size_t product_bytes() const override { return products_.bytes(); }
  void add_row(const Tensor& values, const Tensor& to) override {
    for_rows(to.rows, to.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) add_row_to(values, 0, to, r);
    });
  }
  void add_column_sums(const Tensor& x, const Tensor& to) override {
    for_rows(x.cols, x.rows, [&](std::int64_t begin, std::int64_t end) {
      const Tensor part = x.col_range(begin, end - begin), of_part = to.col_range(begin, end - begin);
      float* const sums = rows().edit(of_part, 0, 1);
      if (x.type == ddl::DataType::f32) {
        cpu::add_column_sums(part.as<float>(), part.rows, part.cols, part.stride, sums);
      } else {
        for (std::int64_t r = 0; r < part.rows; ++r) cpu::add(sums, rows().read(part, r, 0), part.cols);
      }
      rows().put(of_part, 0, 1);
    });
  }

  // Embedding -----------------------------------------------------------------------------------
  void embedding_backward(const Tensor& gradient, const Indices& ids, const Tensor& table_gradient) override {
    occurrences_.resize(static_cast<std::size_t>(ids.size));
    std::iota(occurrences_.begin(), occurrences_.end(), std::int64_t{0});
    std::ranges::stable_sort(occurrences_, {}, [&](std::int64_t i) { return ids.data[i]; });
    for (std::size_t k = 0; k < occurrences_.size();) {
      const std::int32_t id = ids.data[occurrences_[k]];
      float* const sums = rows().edit(table_gradient, id, 0);
      for (; k < occurrences_.size() && ids.data[occurrences_[k]] == id; ++k)
        cpu::add(sums, rows().read(gradient, occurrences_[k], 1), gradient.cols);
      rows().put(table_gradient, id, 0);
    }
  }

  // Dropout -------------------------------------------------------------------------------------
  void dropout(const Tensor& x, const Tensor& y, const PhiloxKey* key, double rate, const Indices& samples,
               std::int64_t first_position, std::int64_t first_column) override {
    assert(first_column % 4 == 0);
    if (rate <= 0) {
      if (x.data != y.data) copy(x, y);
      return;
    }
    const PhiloxKey philox_key = *key;
    const std::uint32_t threshold = dropout_threshold(rate);
    const auto scale = static_cast<float>(1.0 / (1.0 - rate));
    for_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        cpu::dropout_row(rows().read(x, r, 0), rows().write(y, r, 1), x.cols, philox_key, threshold, scale,
                         static_cast<std::uint32_t>(samples.data[r % samples.size]),
                         static_cast<std::uint32_t>(first_position + r / samples.size),
                         static_cast<std::uint32_t>(first_column / 4));
        rows().put(y, r, 1);
      }
    });
  }

  // LSTM ----------------------------------------------------------------------------------------
  void lstm_cell_forward(const LstmStep& s) override {
    const std::int64_t units = s.c.cols;
    for_rows(s.c.rows, units * 40, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        const std::int64_t from = s.sources.size != 0 ? s.sources.data[b] : b;
        if (s.lengths.size != 0 && s.step >= s.lengths.data[b]) {
          if (s.c.data != s.c_prev.data) copy_row(s.c_prev, from, s.c, b);
          if (s.h.data != s.h_prev.data) copy_row(s.h_prev, from, s.h, b);
          if (s.output.data != nullptr) zero(s.output.row_range(b, 1));
          continue;
        }
        with_element_type(s.gates, [&]<typename T>(T) {
          cpu::lstm_forward_row(row<T>(s.gates, b), row(s.products, from), s.bias.as<float>(),
                                row(s.c_prev, from), row(s.c, b), row<T>(s.h, b), row<T>(s.tanh_c, b),
                                row<T>(s.output, b), units, static_cast<float>(s.forget_bias));
        });
      }
    });
  }
  void lstm_cell_backward(const LstmStepBackward& s) override {
    const std::int64_t units = s.d_c.cols;
    for_rows(s.d_c.rows, units * 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        if (s.lengths.size != 0 && s.step >= s.lengths.data[b]) {
          if (s.d_h_prev.data != nullptr && s.d_h_prev.data != s.d_h.data) copy_row(s.d_h, b, s.d_h_prev, b);
          zero(s.gates.row_range(b, 1));
          continue;
        }
        with_element_type(s.gates, [&]<typename T>(T) {
          cpu::lstm_backward_row(row<T>(s.gates, b), row(s.c_prev, b), row<T>(s.tanh_c, b),
                                 row<T>(s.d_output, b), row<T>(s.d_h, b), row(s.d_c, b), units);
        });
        if (s.d_h_prev.data != nullptr) zero(s.d_h_prev.row_range(b, 1));
      }
    });
  }

  // Other cells ---------------------------------------------------------------------------------
  void cell_rows(CellOperation operation, const CellRows& cells) override {
    for_rows(cells.gates.rows, cells.gates.cols * 10, [&](std::int64_t begin, std::int64_t end) {
      if (cells.gates.type == ddl::DataType::f32) return cpu::cell_rows(operation, cells, begin, end);
      for (std::int64_t r = begin; r < end; ++r) {
        CellRows row = cells;
        std::size_t slot = 0;
        const std::array operands = {&row.gates,    &row.saved, &row.scratch, &row.h_before,
                                     &row.c_before, &row.h,     &row.c,       &row.output,
                                     &row.d_output, &row.d_h,   &row.d_c};
        for (Tensor* x : operands) *x = {rows().edit(*x, r, slot++), x->rows, x->cols, 0, ddl::DataType::f32};
        cpu::cell_rows(operation, row, r, r + 1);
        slot = 0;
        for (const Tensor* x : {&cells.gates, &cells.saved, &cells.scratch, &cells.h_before, &cells.c_before,
                                &cells.h, &cells.c, &cells.output, &cells.d_output, &cells.d_h, &cells.d_c}) {
          const bool is_read_only = x == &cells.h_before || x == &cells.c_before || x == &cells.d_output;
          if (!is_read_only) rows().put(*x, r, slot);
          ++slot;
        }
      }
    });
  }

  // Attention -----------------------------------------------------------------------------------
  void attention_forward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                         const Tensor& keys, const Tensor& memory, const Indices& lengths,
                         const Tensor& weights, const Tensor& context) override {
    const float g = scale_of(score);
    for_rows(query.rows, shape.source_steps * (keys.cols + memory.cols),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 const std::int64_t b = sentence(shape, r);
                 const std::int64_t length = lengths.data[b];
                 const float* const q = rows().read(query, r, 0);
                 float* const w = rows().write(weights, r, 1);
                 for (std::int64_t s = 0; s < length; ++s) {
                   const std::int64_t position = s * shape.sentences + b;
                   w[s] = score.v.data != nullptr ? cpu::additive_score(q, rows().read(keys, position, 2),
                                                                        score.v.as<float>(), keys.cols)
                                                  : g * dot(q, keys, position);
                 }
                 if (length > 0) cpu::softmax(w, length);
                 std::fill(w + length, w + shape.source_steps, 0.0f);
                 weighted_sum(w, length, memory, b, shape.sentences, rows().write(context, r, 3));
                 rows().put(weights, r, 1);
                 rows().put(context, r, 3);
               }
             });
  }
  void attention_backward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                          const Tensor& keys, const Tensor& memory, const Indices& lengths,
                          const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                          const Tensor& d_query) override {
    const float g = scale_of(score);
    for_rows(weights.rows, shape.source_steps * (keys.cols + memory.cols),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 const std::int64_t b = sentence(shape, r);
                 const std::int64_t length = lengths.data[b];
                 const float* const w = rows().read(weights, r, 0);
                 const float* const dc = rows().read(d_context, r, 1);
                 float* const ds = rows().write(d_scores, r, 2);
                 float inner = 0.0f;
                 for (std::int64_t s = 0; s < length; ++s) {
                   ds[s] = dot(dc, memory, s * shape.sentences + b);
                   inner += ds[s] * w[s];
                 }
                 for (std::int64_t s = 0; s < length; ++s) ds[s] = w[s] * (ds[s] - inner);
                 std::fill(ds + length, ds + shape.source_steps, 0.0f);
                 float* const dq = rows().write(d_query, r, 3);
                 if (score.v.data != nullptr) {
                   const float* const q = rows().read(query, r, 4);
                   std::fill_n(dq, keys.cols, 0.0f);
                   for (std::int64_t s = 0; s < length; ++s) {
                     cpu::additive_backward(ds[s], q, rows().read(keys, s * shape.sentences + b, 5),
                                            score.v.as<float>(), dq, keys.cols);
                   }
                 } else {
                   weighted_sum(ds, length, keys, b, shape.sentences, dq);
                   for (std::int64_t j = 0; g != 1.0f && j < keys.cols; ++j) dq[j] *= g;
                 }
                 rows().put(d_scores, r, 2);
                 rows().put(d_query, r, 3);
               }
             });
  }
  void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Indices& lengths,
                                 const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                                 const Tensor& d_keys, const Tensor& d_memory,
                                 const AttentionScore& d_score) override {
    if (shape.sentences == 0) return;
    const std::int64_t steps = query.rows / shape.sentences;
    const bool additive = score.v.data != nullptr;
    // Sums of each sentence are added in their order, so that bits do not depend on the threads.
    d_v_.assign(static_cast<std::size_t>(shape.sentences * (additive ? keys.cols : 1)), 0.0f);
    const std::int64_t work = shape.source_steps * steps * (keys.cols * (additive ? 10 : 1) + d_memory.cols);
    for_rows(shape.sentences, work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        float* const d_v = d_v_.data() + b * (additive ? keys.cols : 1);
        sentence_backward(shape, b, lengths.data[b], score, query, keys, weights, d_scores, d_context, d_keys,
                          d_memory, d_v);
      }
    });
    if (additive) {
      add_column_sums({d_v_.data(), shape.sentences, keys.cols, keys.cols, ddl::DataType::f32}, d_score.v);
    } else if (score.scale.data != nullptr) {
      add_column_sums({d_v_.data(), shape.sentences, 1, 1, ddl::DataType::f32}, d_score.scale);
    }
  }

  void scaled_direction(const Tensor& v, const Tensor& g, const Tensor& out) override {
    const double length = std::sqrt(cpu::sum_of_squares(v.as<float>(), v.cols));
    const auto factor = static_cast<float>(*g.as<float>() / length);
    for (std::int64_t j = 0; j < v.cols; ++j) out.as<float>()[j] = factor * v.as<float>()[j];
  }
  void scaled_direction_backward(const Tensor& v, const Tensor& g, const Tensor& d_out, const Tensor& d_v,
                                 const Tensor& d_g) override {
    const double length = std::sqrt(cpu::sum_of_squares(v.as<float>(), v.cols));
    double along = 0;
    for (std::int64_t j = 0; j < v.cols; ++j) along += d_out.as<float>()[j] * (v.as<float>()[j] / length);
    float* const of_g = rows().edit(d_g, 0, 0);
    float* const of_v = rows().edit(d_v, 0, 1);
    *of_g += static_cast<float>(along);
    for (std::int64_t j = 0; j < v.cols; ++j) {
      const double across = d_out.as<float>()[j] - along * (v.as<float>()[j] / length);
      of_v[j] += static_cast<float>(*g.as<float>() / length * across);
    }
    rows().put(d_g, 0, 0);
    rows().put(d_v, 0, 1);
  }

  // Loss ----------------------------------------------------------------------------------------
  /// The kernel and its gradient are read and written once for each block; logits leave the caches anyway.
  [[nodiscard]] std::int64_t logits_rows(std::int64_t) const override { return 1024; }
  void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                             const Tensor& gradient, const double* scale, const Tensor& sums) override {
    assert(sums.type == ddl::DataType::f64 && (gradient.data == nullptr || gradient.data == logits.data));
    const float factor =
        gradient.data != nullptr ? static_cast<float>(scale != nullptr ? *scale : 1.0) : 0.0f;
    double nll = 0;
    double smoothed = 0;
    // Row losses are added in the order of rows, whatever the number of threads.
    row_losses_.resize(std::max(row_losses_.size(), static_cast<std::size_t>(logits.rows)));
    for_rows(logits.rows, logits.cols * 20, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        if (targets.data[r] < 0) {
          row_losses_[static_cast<std::size_t>(r)] = {};
          if (gradient.data != nullptr) {
            std::memset(row_bytes(gradient, r), 0,
                        static_cast<std::size_t>(gradient.cols) * ddl::size_of(gradient.type));
          }
          continue;
        }
        row_losses_[static_cast<std::size_t>(r)] =
            cpu::cross_entropy_row(row(logits, r), logits.cols, targets.data[r],
                                   static_cast<float>(label_smoothing), factor, gradient.type != logits.type);
      }
    });
    for (std::int64_t r = 0; r < logits.rows; ++r) {
      nll += row_losses_[static_cast<std::size_t>(r)].negative_log_likelihood;
      smoothed += row_losses_[static_cast<std::size_t>(r)].smoothed;
    }
    sums.as<double>()[0] += nll;
    sums.as<double>()[1] += smoothed;
  }
  void log_softmax(const Tensor& logits) override {
    for_rows(logits.rows, logits.cols * 20, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) cpu::log_softmax_row(row(logits, r), logits.cols);
    });
  }
  /// 1 MiB, which stays in the caches.
  [[nodiscard]] LogitsBlock best_block() const override { return {256, 1024}; }
  void best_log_softmax(const Tensor& logits, std::int64_t first, std::int64_t vocabulary, std::int32_t also,
                        const Tensor& best) override {
    const std::int64_t count = (best.cols - 3) / 2;
    assert(best.type == ddl::DataType::f64 && count <= vocabulary);
    for_rows(logits.rows, logits.cols * 20, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        double* const found = row<double>(best, r);
        cpu::best_logits_row(row(logits, r), logits.cols, first, also, count, found);
        if (first + logits.cols == vocabulary) cpu::best_log_probabilities(count, found);
      }
    });
  }
  void log_add_exp(const Tensor& from, const Tensor& to) override {
    for_rows(to.rows, to.cols * 40, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        std::transform(row(to, r), row(to, r) + to.cols, row(from, r), row(to, r), nmt::log_add_exp<float>);
      }
    });
  }
  void draw_columns(const Tensor& log_probabilities, const double* numbers, double temperature,
                    std::int32_t excluded, const Tensor& drawn) override {
    assert(drawn.type == ddl::DataType::f64 && drawn.cols == 2);
    for_rows(drawn.rows, log_probabilities.cols * 40, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        draw_column(row(log_probabilities, r), log_probabilities.cols, numbers[r], temperature, excluded,
                    row<double>(drawn, r), OneThread());
      }
    });
  }

  // Optimisers ----------------------------------------------------------------------------------
  void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings,
              std::span<const UpdateRange> ranges) override {
    constexpr std::int64_t most = 16384;
    std::int64_t elements = 0;
    blocks_.clear();
    for (const UpdateRange& range : ranges) {
      elements += range.count;
      for (std::int64_t at = 0; at < range.count; at += most) {
        UpdateRange& block = blocks_.emplace_back(range, cpu::SquareSums{}).first;
        block.first += at;
        block.moment += at;
        block.count = std::min(most, range.count - at);
      }
    }
    const StepFactors given = given_factors(settings);
    const auto blocks = static_cast<std::int64_t>(blocks_.size());
    for_rows(blocks, elements * 8 / std::max<std::int64_t>(blocks, 1),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t b = begin; b < end; ++b) {
                 auto& [block, sums] = blocks_[static_cast<std::size_t>(b)];
                 const UpdateTensors part = part_of(tensors, block);
                 const StepFactors step = step_of(settings, block.layer, given);
                 if (step.takes) {
                   sums = update_block(rule, part, factors_of<float>(settings, block.decays, step),
                                       settings.zero_gradients);
                 } else if (settings.zero_gradients) {
                   zero(part.gradients);
                 }
               }
             });
    if (!use_of(rule).measures) return;
    // They are added in order, whatever thread has which block.
    for (const auto& [block, of_block] : blocks_) {
      double* const sums = row<double>(tensors.sums, block.layer);
      sums[0] += block.sums_share * of_block.values;
      sums[1] += block.sums_share * of_block.measured;
    }
  }

  void largest_magnitude(const Tensor& x, const Tensor& result) override {
    std::vector<float> parts(static_cast<std::size_t>(threads_));
    for_rows(threads_, x.size() / threads_ + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t first = x.size() * part / threads_, last = x.size() * (part + 1) / threads_;
        with_element_type(x, [&]<typename T>(T) {
          parts[static_cast<std::size_t>(part)] = cpu::largest_magnitude(x.as<T>() + first, last - first);
        });
      }
    });
    double& largest = *result.as<double>();
    largest = std::max(largest, static_cast<double>(std::ranges::max(parts)));
  }

 private:
  /// Widens 16-bit gradients in parts that stay in the L1 cache.
  static cpu::SquareSums update_block(UpdateRule rule, const UpdateTensors& tensors,
                                      const UpdateFactors<float>& factors, bool zero_gradients) {
    if (tensors.gradients.type == ddl::DataType::f32)
      return cpu::update(rule, tensors, factors, zero_gradients);
    std::array<float, 1024> wide;
    constexpr auto most = static_cast<std::int64_t>(wide.size());
    cpu::SquareSums sums{};
    for (std::int64_t at = 0; at < tensors.values.size(); at += most) {
      const std::int64_t count = std::min(most, tensors.values.size() - at);
      UpdateTensors part = part_of(tensors, {.first = at, .count = count, .moment = at});
      const Tensor gradients = part.gradients;
      cpu::widen(gradients.as<std::uint16_t>(), wide.data(), count);
      part.gradients = {wide.data(), 1, count, count, ddl::DataType::f32};
      const cpu::SquareSums more = cpu::update(rule, part, factors, false);
      sums.values += more.values;
      sums.measured += more.measured;
      if (zero_gradients) std::fill_n(gradients.as<std::uint16_t>(), count, std::uint16_t{0});
    }
    return sums;
  }

  static std::int64_t sentence(const AttentionShape& shape, std::int64_t r) {
    return shape.sentence_of_row.size == 0 ? r % shape.sentences : shape.sentence_of_row.data[r];
  }

  static float scale_of(const AttentionScore& score) {
    return score.scale.data != nullptr ? *score.scale.as<float>() : 1.0f;
  }

  static cpu::Rows& rows() { return cpu::rows_of_thread(); }
  static std::byte* row_bytes(const Tensor& x, std::int64_t r) {
    return static_cast<std::byte*>(x.data) + r * x.stride * static_cast<std::int64_t>(ddl::size_of(x.type));
  }
  static void copy_row(const Tensor& from, std::int64_t r, const Tensor& to, std::int64_t to_row) {
    if (from.type == to.type) {
      std::memcpy(row_bytes(to, to_row), row_bytes(from, r),
                  static_cast<std::size_t>(from.cols) * ddl::size_of(from.type));
      return;
    }
    std::copy_n(rows().read(from, r, 0), from.cols, rows().write(to, to_row, 1));
    rows().put(to, to_row, 1);
  }
  static void add_row_to(const Tensor& from, std::int64_t r, const Tensor& to, std::int64_t to_row) {
    cpu::add(rows().edit(to, to_row, 0), rows().read(from, r, 1), from.cols);
    rows().put(to, to_row, 0);
  }
  template <typename T>
  void download_to(const Tensor& from, T* to) {
    for (std::int64_t r = 0; r < from.rows; ++r) {
      if (from.type == ddl::DataType::f64) {
        std::copy_n(from.as<double>() + r * from.stride, from.cols, to + r * from.cols);
      } else {
        std::copy_n(rows().read(from, r, 0), from.cols, to + r * from.cols);
      }
    }
  }

  static float dot(const float* a, const Tensor& x, std::int64_t r) {
    return x.type == ddl::DataType::f32 ? cpu::dot(a, row(x, r), x.cols)
                                        : cpu::dot(a, row<std::uint16_t>(x, r), x.cols);
  }
  /// y = sum of `count` rows of x from row `first`, `every` rows apart, times a.
  static void weighted_sum(const float* a, std::int64_t count, const Tensor& x, std::int64_t first,
                           std::int64_t every, float* y) {
    x.type == ddl::DataType::f32
        ? cpu::weighted_sum(a, count, row(x, first), x.stride * every, y, x.cols)
        : cpu::weighted_sum(a, count, row<std::uint16_t>(x, first), x.stride * every, y, x.cols);
  }

  /// Rows of one sentence as fp32, a whole batch apart or, of a 16-bit tensor, in `copy`.
  static Tensor of_sentence(const Tensor& x, std::int64_t b, std::int64_t sentences, std::int64_t count,
                            std::vector<float>& copy, bool reads) {
    if (x.type == ddl::DataType::f32) return {row(x, b), count, x.cols, x.stride * sentences, x.type};
    copy.resize(static_cast<std::size_t>(count * x.cols));
    for (std::int64_t i = 0; reads && i < count; ++i) {
      std::copy_n(rows().read(x, i * sentences + b, 0), x.cols, copy.data() + i * x.cols);
    }
    return {copy.data(), count, x.cols, x.cols, ddl::DataType::f32};
  }
  static void put_back(const Tensor& values, const Tensor& x, std::int64_t b, std::int64_t sentences) {
    for (std::int64_t i = 0; x.type != ddl::DataType::f32 && i < values.rows; ++i) {
      copy_row(values, i, x, i * sentences + b);
    }
  }

  /// `attention_memory_backward` of one sentence; adds to d_v [units], or to the scale's gradient d_v[0].
  void sentence_backward(const AttentionShape& shape, std::int64_t b, std::int64_t length,
                         const AttentionScore& score, const Tensor& query, const Tensor& keys,
                         const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                         const Tensor& d_keys, const Tensor& d_memory, float* d_v) {
    static thread_local std::array<std::vector<float>, 7> copies;
    const std::int64_t sentences = shape.sentences, steps = query.rows / sentences;
    for (std::int64_t s = length; s < shape.source_steps; ++s) {
      zero(d_keys.row_range(s * sentences + b, 1));
      zero(d_memory.row_range(s * sentences + b, 1));
    }
    const Tensor q = of_sentence(query, b, sentences, steps, copies[0], true);
    const Tensor k = of_sentence(keys, b, sentences, length, copies[1], true);
    const Tensor w = of_sentence(weights, b, sentences, steps, copies[2], true).col_range(0, length);
    const Tensor ds = of_sentence(d_scores, b, sentences, steps, copies[3], true).col_range(0, length);
    const Tensor dc = of_sentence(d_context, b, sentences, steps, copies[4], true);
    const Tensor dk = of_sentence(d_keys, b, sentences, length, copies[5], false);
    const Tensor dm = of_sentence(d_memory, b, sentences, length, copies[6], false);
    gemm(Transpose::yes, Transpose::no, w, dc, false, dm);
    if (score.v.data != nullptr) {
      for (std::int64_t s = 0; s < length; ++s) {
        std::fill_n(row(dk, s), dk.cols, 0.0f);
        for (std::int64_t t = 0; t < steps; ++t) {
          cpu::additive_memory_backward(row(ds, t)[s], row(q, t), row(k, s), score.v.as<float>(), row(dk, s),
                                        d_v, dk.cols);
        }
      }
    } else {
      gemm(Transpose::yes, Transpose::no, ds, q, false, dk);
      for (std::int64_t s = 0; score.scale.data != nullptr && s < length; ++s) {
        *d_v += cpu::dot(row(dk, s), row(k, s), dk.cols);
        for (std::int64_t j = 0; j < dk.cols; ++j) row(dk, s)[j] *= scale_of(score);
      }
    }
    put_back(dk, d_keys, b, sentences);
    put_back(dm, d_memory, b, sentences);
  }

  /// Splits `rows` over the threads if there is enough work; `work` estimates the operations of one row.
  template <typename F>
  void for_rows(std::int64_t rows, std::int64_t work, const F& function) const {
    constexpr std::int64_t worth_a_thread = 200'000;
    const auto parts = static_cast<int>(std::clamp<std::int64_t>(rows * work / worth_a_thread, 1, threads_));
    if (parts == 1) {
      function(0, rows);
      return;
    }
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int part = 0; part < parts; ++part) function(rows * part / parts, rows * (part + 1) / parts);
  }

  int threads_;
  cpu::Products products_;
  std::vector<std::int64_t> occurrences_;  // of words, each word's together
  std::vector<cpu::RowLoss> row_losses_;
  std::vector<float> d_v_;
  std::vector<std::pair<UpdateRange, cpu::SquareSums>> blocks_;  // of an update
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace nmt
