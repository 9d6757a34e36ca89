#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cpu_kernels.hpp"

namespace nmt {
namespace {

float* row(const Tensor& x, std::int64_t r) { return x.as<float>() + r * x.stride; }

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(std::max(threads, 1)) { omp_set_num_threads(threads_); }

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] ddl::DataType type() const override { return ddl::DataType::f32; }

  // Memory --------------------------------------------------------------------------------------
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    // calloc's large blocks are fresh pages of zeros that take no memory until they are touched.
    constexpr std::size_t alignment = 64;
    void* block = std::calloc(bytes + alignment, 1);
    if (block == nullptr) throw std::bad_alloc();
    void* aligned = block;
    std::size_t space = bytes + alignment;
    std::align(alignment, bytes, aligned, space);
    return {aligned, [block](void*) { std::free(block); }};
  }
  void upload(const Tensor& to, std::span<const float> from) override {
    if (to.type == ddl::DataType::f64) {
      for (std::int64_t r = 0; r < to.rows; ++r)
        std::copy_n(from.data() + r * to.cols, to.cols, to.as<double>() + r * to.stride);
      return;
    }
    for (std::int64_t r = 0; r < to.rows; ++r) std::copy_n(from.data() + r * to.cols, to.cols, row(to, r));
  }
  void upload(const Indices& to, std::span<const std::int32_t> from) override {
    std::copy(from.begin(), from.end(), to.data);
  }
  void download(const Tensor& from, std::span<float> to) override {
    for (std::int64_t r = 0; r < from.rows; ++r)
      std::copy_n(row(from, r), from.cols, to.data() + r * from.cols);
  }
  void download(const Tensor& from, std::span<double> to) override {
    for (std::int64_t r = 0; r < from.rows; ++r) {
      if (from.type == ddl::DataType::f64) {
        std::copy_n(from.as<double>() + r * from.stride, from.cols, to.data() + r * from.cols);
      } else {
        std::copy_n(row(from, r), from.cols, to.data() + r * from.cols);
      }
    }
  }
  void zero(const Tensor& x) override {
    const auto element = ddl::size_of(x.type);
    if (x.contiguous()) {
      std::memset(x.data, 0, static_cast<std::size_t>(x.size()) * element);
      return;
    }
    for (std::int64_t r = 0; r < x.rows; ++r) {
      std::memset(row(x, r), 0, static_cast<std::size_t>(x.cols) * element);
    }
  }
  void copy(const Tensor& from, const Tensor& to) override {
    for (std::int64_t r = 0; r < from.rows; ++r) std::copy_n(row(from, r), from.cols, row(to, r));
  }
  void add(const Tensor& from, const Tensor& to) override {
    if (from.contiguous() && to.contiguous()) {
      cpu::add(to.as<float>(), from.as<float>(), from.size());
      return;
    }
    for (std::int64_t r = 0; r < from.rows; ++r) cpu::add(row(to, r), row(from, r), from.cols);
  }
  void gather_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    for (std::int64_t i = 0; i < rows.size; ++i) std::copy_n(row(from, rows.data[i]), from.cols, row(to, i));
  }
  void scatter_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    for (std::int64_t i = 0; i < rows.size; ++i) std::copy_n(row(from, i), from.cols, row(to, rows.data[i]));
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
  void add_row(const Tensor& values, const Tensor& to) override {
    for (std::int64_t r = 0; r < to.rows; ++r) cpu::add(row(to, r), values.as<float>(), to.cols);
  }
  void add_column_sums(const Tensor& x, const Tensor& to) override {
    cpu::add_column_sums(x.as<float>(), x.rows, x.cols, x.stride, to.as<float>());
  }

  // Embedding -----------------------------------------------------------------------------------
  void embedding_backward(const Tensor& gradient, const Indices& ids, const Tensor& table_gradient) override {
    for (std::int64_t i = 0; i < ids.size; ++i) {
      cpu::add(row(table_gradient, ids.data[i]), row(gradient, i), gradient.cols);
    }
  }

  // Dropout -------------------------------------------------------------------------------------
  void dropout(const Tensor& x, const Tensor& y, const DropoutKey& key, double rate, const Indices& samples,
               std::int64_t first_position, std::int64_t first_column) override {
    assert(first_column % 4 == 0);
    if (rate <= 0) {
      if (x.data != y.data) copy(x, y);
      return;
    }
    const auto philox_key = key.philox_key();
    const std::uint32_t threshold = dropout_threshold(rate);
    const auto scale = static_cast<float>(1.0 / (1.0 - rate));
    for_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        cpu::dropout_row(row(x, r), row(y, r), x.cols, philox_key, threshold, scale,
                         static_cast<std::uint32_t>(samples.data[r % samples.size]),
                         static_cast<std::uint32_t>(first_position + r / samples.size),
                         static_cast<std::uint32_t>(first_column / 4));
      }
    });
  }

  // LSTM ----------------------------------------------------------------------------------------
  void lstm_cell_forward(const LstmStep& s) override {
    const std::int64_t units = s.c.cols;
    for_rows(s.c.rows, units * 40, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        float* const output = s.output.data != nullptr ? row(s.output, b) : nullptr;
        if (s.lengths.size != 0 && s.step >= s.lengths.data[b]) {
          if (s.c.data != s.c_prev.data) std::copy_n(row(s.c_prev, b), units, row(s.c, b));
          if (s.h.data != s.h_prev.data) std::copy_n(row(s.h_prev, b), units, row(s.h, b));
          if (output != nullptr) std::fill_n(output, units, 0.0f);
        } else {
          cpu::lstm_forward_row(row(s.gates, b), s.bias.as<float>(), row(s.c_prev, b), row(s.c, b),
                                row(s.h, b), row(s.tanh_c, b), output, units,
                                static_cast<float>(s.forget_bias));
        }
      }
    });
  }
  void lstm_cell_backward(const LstmStepBackward& s) override {
    const std::int64_t units = s.d_c.cols;
    for_rows(s.d_c.rows, units * 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        float* const d_h = row(s.d_h, b);
        float* const d_h_prev = s.d_h_prev.data != nullptr ? row(s.d_h_prev, b) : nullptr;
        if (s.lengths.size != 0 && s.step >= s.lengths.data[b]) {
          if (d_h_prev != nullptr && d_h_prev != d_h) std::copy_n(d_h, units, d_h_prev);
          std::fill_n(row(s.gates, b), 4 * units, 0.0f);
          continue;
        }
        if (s.d_output.data != nullptr) cpu::add(d_h, row(s.d_output, b), units);
        cpu::lstm_backward_row(row(s.gates, b), row(s.c_prev, b), row(s.tanh_c, b), d_h, row(s.d_c, b),
                               units);
        if (d_h_prev != nullptr) std::fill_n(d_h_prev, units, 0.0f);
      }
    });
  }

  // Other cells ---------------------------------------------------------------------------------
  void cell_rows(CellOperation operation, const CellRows& rows) override {
    for_rows(rows.gates.rows, rows.gates.cols * 10,
             [&](std::int64_t begin, std::int64_t end) { cpu::cell_rows(operation, rows, begin, end); });
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
                 float* const w = row(weights, r);
                 for (std::int64_t s = 0; s < length; ++s) {
                   const float* const key = row(keys, s * shape.sentences + b);
                   w[s] = score.v.data != nullptr
                              ? cpu::additive_score(row(query, r), key, score.v.as<float>(), keys.cols)
                              : g * cpu::dot(row(query, r), key, query.cols);
                 }
                 if (length > 0) cpu::softmax(w, length);
                 std::fill(w + length, w + shape.source_steps, 0.0f);
                 cpu::weighted_sum(w, length, row(memory, b), memory.stride * shape.sentences,
                                   row(context, r), memory.cols);
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
                 const float* const w = row(weights, r);
                 float* const ds = row(d_scores, r);
                 float inner = 0.0f;
                 for (std::int64_t s = 0; s < length; ++s) {
                   ds[s] = cpu::dot(row(d_context, r), row(memory, s * shape.sentences + b), memory.cols);
                   inner += ds[s] * w[s];
                 }
                 float* const dq = row(d_query, r);
                 for (std::int64_t s = 0; s < length; ++s) ds[s] = w[s] * (ds[s] - inner);
                 std::fill(ds + length, ds + shape.source_steps, 0.0f);
                 if (score.v.data != nullptr) {
                   std::fill_n(dq, keys.cols, 0.0f);
                   for (std::int64_t s = 0; s < length; ++s) {
                     cpu::additive_backward(ds[s], row(query, r), row(keys, s * shape.sentences + b),
                                            score.v.as<float>(), dq, keys.cols);
                   }
                   continue;
                 }
                 cpu::weighted_sum(ds, length, row(keys, b), keys.stride * shape.sentences, dq, keys.cols);
                 if (g != 1.0f) {
                   for (std::int64_t j = 0; j < keys.cols; ++j) dq[j] *= g;
                 }
               }
             });
  }
  void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Indices& lengths,
                                 const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                                 const Tensor& d_keys, const Tensor& d_memory,
                                 const AttentionScore& d_score) override {
    const float g = scale_of(score);
    const std::int64_t sentences = shape.sentences;
    if (sentences == 0) return;
    const std::int64_t steps = query.rows / sentences;
    float scale_gradient = 0.0f;
    for (std::int64_t b = 0; b < sentences; ++b) {
      const std::int64_t length = lengths.data[b];
      for (std::int64_t s = length; s < shape.source_steps; ++s) {
        std::fill_n(row(d_keys, s * sentences + b), d_keys.cols, 0.0f);
        std::fill_n(row(d_memory, s * sentences + b), d_memory.cols, 0.0f);
      }
      // Rows of one sentence, a whole batch apart.
      const auto every_sentence = [&](const Tensor& x) {
        return Tensor(row(x, b), steps, x.cols, x.stride * sentences, x.type);
      };
      const auto positions = [&](const Tensor& x) {
        return Tensor(row(x, b), length, x.cols, x.stride * sentences, x.type);
      };
      if (score.v.data == nullptr) {
        gemm(Transpose::yes, Transpose::no, every_sentence(d_scores).col_range(0, length),
             every_sentence(query), false, positions(d_keys));
      }
      gemm(Transpose::yes, Transpose::no, every_sentence(weights).col_range(0, length),
           every_sentence(d_context), false, positions(d_memory));
      if (score.scale.data == nullptr) continue;
      for (std::int64_t s = 0; s < length; ++s) {
        float* const dk = row(d_keys, s * sentences + b);
        scale_gradient += cpu::dot(dk, row(keys, s * sentences + b), keys.cols);
        for (std::int64_t j = 0; j < d_keys.cols; ++j) dk[j] *= g;
      }
    }
    if (score.scale.data != nullptr) *d_score.scale.as<float>() += scale_gradient;
    if (score.v.data != nullptr)
      additive_memory_backward(shape, score, query, keys, lengths, d_scores, d_keys, d_score);
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
    *d_g.as<float>() += static_cast<float>(along);
    for (std::int64_t j = 0; j < v.cols; ++j) {
      const double across = d_out.as<float>()[j] - along * (v.as<float>()[j] / length);
      d_v.as<float>()[j] += static_cast<float>(*g.as<float>() / length * across);
    }
  }

  // Loss ----------------------------------------------------------------------------------------
  /// As many as the last-level cache holds; but a large kernel, which is read four times for each block,
  /// costs more than logits that leave the cache.
  [[nodiscard]] std::int64_t logits_rows(std::int64_t vocabulary) const override {
    return std::clamp<std::int64_t>((std::int64_t{1} << 21) / vocabulary, 256, 1024);
  }
  void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                             bool gradient, const Tensor& sums) override {
    assert(sums.type == ddl::DataType::f64);
    double nll = 0;
    double smoothed = 0;
    // Row losses are added in the order of rows, whatever the number of threads.
    row_losses_.resize(std::max(row_losses_.size(), static_cast<std::size_t>(logits.rows)));
    for_rows(logits.rows, logits.cols * 20, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        row_losses_[static_cast<std::size_t>(r)] = cpu::cross_entropy_row(
            row(logits, r), logits.cols, targets.data[r], static_cast<float>(label_smoothing), gradient);
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

  // Optimisers ----------------------------------------------------------------------------------
  void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings) override {
    // The sums of blocks are added in order, whatever thread has which block.
    constexpr std::int64_t block = 16384;
    const std::int64_t size = tensors.values.size();
    const std::int64_t blocks = (size + block - 1) / block;
    const UpdateFactors<float> factors = factors_of<float>(settings);
    block_sums_.resize(static_cast<std::size_t>(blocks));
    for_rows(blocks, block * 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        block_sums_[static_cast<std::size_t>(b)] = cpu::update(
            rule, tensors, factors, settings.zero_gradients, b * block, std::min(size, (b + 1) * block));
      }
    });
    if (tensors.sums.empty()) return;
    double* const sums = tensors.sums.as<double>();
    sums[0] = sums[1] = 0;
    for (const cpu::SquareSums& of_block : block_sums_) {
      sums[0] += of_block.values;
      sums[1] += of_block.measured;
    }
  }

 private:
  static std::int64_t sentence(const AttentionShape& shape, std::int64_t r) {
    return r % (shape.sentences * shape.queries_per_sentence) / shape.queries_per_sentence;
  }

  static float scale_of(const AttentionScore& score) {
    return score.scale.data != nullptr ? *score.scale.as<float>() : 1.0f;
  }

  /// d_keys, and d_v by sentences, so that its bits do not depend on the threads.
  void additive_memory_backward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                                const Tensor& keys, const Indices& lengths, const Tensor& d_scores,
                                const Tensor& d_keys, const AttentionScore& d_score) {
    const std::int64_t units = keys.cols, steps = query.rows / shape.sentences;
    d_v_.assign(static_cast<std::size_t>(shape.sentences * units), 0.0f);
    for_rows(shape.sentences, shape.source_steps * steps * units * 10,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t b = begin; b < end; ++b) {
                 for (std::int64_t s = 0; s < lengths.data[b]; ++s) {
                   const std::int64_t position = s * shape.sentences + b;
                   std::fill_n(row(d_keys, position), units, 0.0f);
                   for (std::int64_t t = 0; t < steps; ++t) {
                     const std::int64_t r = t * shape.sentences + b;
                     cpu::additive_memory_backward(row(d_scores, r)[s], row(query, r), row(keys, position),
                                                   score.v.as<float>(), row(d_keys, position),
                                                   d_v_.data() + b * units, units);
                   }
                 }
               }
             });
    cpu::add_column_sums(d_v_.data(), shape.sentences, units, units, d_score.v.as<float>());
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
  std::vector<cpu::RowLoss> row_losses_;
  std::vector<float> d_v_;
  std::vector<cpu::SquareSums> block_sums_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace nmt
