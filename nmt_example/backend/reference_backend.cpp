#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cell_operations.hpp"
#include "nmt_example/backend/log_probability_rows.hpp"
#include "nmt_example/backend/update_rules.hpp"

namespace nmt {
namespace {

using Index = std::int64_t;

double& at(const Tensor& x, Index row, Index col) {
  assert(x.type == ddl::DataType::f64 && row >= 0 && row < x.rows && col >= 0 && col < x.cols);
  return x.as<double>()[row * x.stride + col];
}

std::int32_t at(const Indices& x, Index i) {
  assert(i >= 0 && i < x.size);
  return x.data[i];
}

template <typename F>
void for_each(const Tensor& x, F f) {
  for (Index row = 0; row < x.rows; ++row)
    for (Index col = 0; col < x.cols; ++col) f(row, col);
}

[[maybe_unused]] bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rows == b.rows && a.cols == b.cols;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

struct DoubleMath {
  static double sigmoid(double x) { return nmt::sigmoid(x); }
  static double tanh(double x) { return std::tanh(x); }
  static double sqrt(double x) { return std::sqrt(x); }
};

bool is_masked(const Indices& lengths, Index step, Index row) {
  return lengths.size != 0 && step >= at(lengths, row);
}

Index sentence_of(const AttentionShape& shape, Index query_row) {
  return shape.sentence_of_row.size == 0 ? query_row % shape.sentences : at(shape.sentence_of_row, query_row);
}

/// The row of step `step` of a sentence in keys and memory.
Index source_row(const AttentionShape& shape, Index step, Index sentence) {
  return step * shape.sentences + sentence;
}

double dot(const Tensor& a, Index row_a, const Tensor& b, Index row_b) {
  assert(a.cols == b.cols);
  double sum = 0;
  for (Index col = 0; col < a.cols; ++col) sum += at(a, row_a, col) * at(b, row_b, col);
  return sum;
}

double scale_value(const Tensor& scale) { return scale.empty() ? 1.0 : at(scale, 0, 0); }

double score_of(const AttentionScore& score, const Tensor& query, Index r, const Tensor& keys, Index row) {
  if (score.v.empty()) return scale_value(score.scale) * dot(query, r, keys, row);
  double sum = 0;
  for (Index u = 0; u < keys.cols; ++u)
    sum += at(score.v, 0, u) * std::tanh(at(query, r, u) + at(keys, row, u));
  return sum;
}

/// The derivative of a score by the query's element u; by the key's it is that with the two exchanged.
double score_slope(const AttentionScore& score, const Tensor& query, Index r, const Tensor& keys, Index row,
                   Index u) {
  if (score.v.empty()) return scale_value(score.scale) * at(keys, row, u);
  const double t = std::tanh(at(query, r, u) + at(keys, row, u));
  return at(score.v, 0, u) * (1 - t * t);
}

double row_max(const Tensor& x, Index row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (Index col = 0; col < x.cols; ++col) largest = std::max(largest, at(x, row, col));
  return largest;
}

/// log(sum of exp(x - offset)) of a row. Log-probabilities are computed relative to the row's largest
/// element: next to a large one, the logarithm would vanish.
double log_sum_exp(const Tensor& x, Index row, double offset) {
  double sum = 0;
  for (Index col = 0; col < x.cols; ++col) sum += std::exp(at(x, row, col) - offset);
  return std::log(sum);
}

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  ddl::DataType type() const override { return ddl::DataType::f64; }

  // Memory --------------------------------------------------------------------------------------
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    constexpr std::align_val_t alignment{64};
    void* memory = ::operator new(std::max<std::size_t>(bytes, 1), alignment);
    std::memset(memory, 0, bytes);
    return {memory, [](void* p) { ::operator delete (p, std::align_val_t{64}); }};
  }

  void upload(const Tensor& to, std::span<const float> from) override {
    assert(static_cast<Index>(from.size()) == to.size());
    for_each(to, [&](Index r, Index c) { at(to, r, c) = from[static_cast<std::size_t>(r * to.cols + c)]; });
  }

  void upload_bytes(void* to, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), static_cast<std::byte*>(to));
  }

  void download_bytes(const void* from, std::span<std::byte> to) override {
    std::copy_n(static_cast<const std::byte*>(from), to.size(), to.begin());
  }

  void download(const Tensor& from, std::span<float> to) override {
    assert(static_cast<Index>(to.size()) == from.size());
    for_each(from, [&](Index r, Index c) {
      to[static_cast<std::size_t>(r * from.cols + c)] = static_cast<float>(at(from, r, c));
    });
  }

  void download(const Tensor& from, std::span<double> to) override {
    assert(static_cast<Index>(to.size()) == from.size());
    for_each(from,
             [&](Index r, Index c) { to[static_cast<std::size_t>(r * from.cols + c)] = at(from, r, c); });
  }

  void zero(const Tensor& x) override {
    for_each(x, [&](Index r, Index c) { at(x, r, c) = 0; });
  }

  void copy(const Tensor& from, const Tensor& to) override {
    assert(same_shape(from, to));
    for_each(to, [&](Index r, Index c) { at(to, r, c) = at(from, r, c); });
  }

  void add(const Tensor& from, const Tensor& to) override {
    assert(same_shape(from, to));
    for_each(to, [&](Index r, Index c) { at(to, r, c) += at(from, r, c); });
  }

  void gather_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    assert(rows.size == to.rows && from.cols == to.cols);
    for_each(to, [&](Index r, Index c) { at(to, r, c) = at(from, at(rows, r), c); });
  }

  void scatter_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    assert(rows.size == from.rows && from.cols == to.cols);
    for_each(from, [&](Index r, Index c) { at(to, at(rows, r), c) = at(from, r, c); });
  }

  // Dense ---------------------------------------------------------------------------------------
  void fill_columns_but(const Tensor& x, std::int64_t first, const Indices& kept, double value) override {
    assert(kept.size == x.rows);
    for_each(x, [&](Index r, Index c) {
      if (c >= first && c != kept.data[r]) at(x, r, c) = value;
    });
  }

  void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
            const Tensor& c) override {
    const bool transpose_a = ta == Transpose::yes;
    const bool transpose_b = tb == Transpose::yes;
    const Index inner = transpose_a ? a.rows : a.cols;
    assert((transpose_a ? a.cols : a.rows) == c.rows);
    assert((transpose_b ? b.cols : b.rows) == inner);
    assert((transpose_b ? b.rows : b.cols) == c.cols);
    for_each(c, [&](Index row, Index col) {
      double sum = accumulate ? at(c, row, col) : 0.0;
      for (Index k = 0; k < inner; ++k)
        sum += (transpose_a ? at(a, k, row) : at(a, row, k)) * (transpose_b ? at(b, col, k) : at(b, k, col));
      at(c, row, col) = sum;
    });
  }

  void add_row(const Tensor& row, const Tensor& to) override {
    assert(row.rows == 1 && row.cols == to.cols);
    for_each(to, [&](Index r, Index c) { at(to, r, c) += at(row, 0, c); });
  }

  void add_column_sums(const Tensor& x, const Tensor& to) override {
    assert(to.rows == 1 && to.cols == x.cols);
    for_each(x, [&](Index r, Index c) { at(to, 0, c) += at(x, r, c); });
  }

  // Embedding -----------------------------------------------------------------------------------
  void embedding_backward(const Tensor& gradient, const Indices& ids, const Tensor& table_gradient) override {
    assert(ids.size == gradient.rows && gradient.cols == table_gradient.cols);
    for_each(gradient, [&](Index r, Index c) { at(table_gradient, at(ids, r), c) += at(gradient, r, c); });
  }

  // Dropout -------------------------------------------------------------------------------------
  void dropout(const Tensor& x, const Tensor& y, const PhiloxKey* key, double rate, const Indices& samples,
               Index first_position, Index first_column) override {
    assert(same_shape(x, y) && first_column % 4 == 0);
    if (rate == 0.0) {
      copy(x, y);
      return;
    }
    const PhiloxKey philox_key = *key;
    const std::uint32_t threshold = dropout_threshold(rate);
    for_each(x, [&](Index r, Index c) {
      const auto sample = static_cast<std::uint32_t>(at(samples, r % samples.size));
      const auto position = static_cast<std::uint32_t>(first_position + r / samples.size);
      const Index column = first_column + c;
      const std::array<std::uint32_t, 4> words =
          dropout_words(philox_key, sample, position, static_cast<std::uint32_t>(column / 4));
      const bool dropped = words[static_cast<std::size_t>(column % 4)] < threshold;
      at(y, r, c) = dropped ? 0.0 : at(x, r, c) / (1.0 - rate);
    });
  }

  // LSTM ----------------------------------------------------------------------------------------
  void lstm_cell_forward(const LstmStep& s) override {
    const Index units = s.c.cols;
    assert(s.gates.cols == 4 * units && s.bias.rows == 1 && s.bias.cols == 4 * units);
    assert(same_shape(s.c, s.h) && same_shape(s.c_prev, s.h_prev));
    assert(s.sources.size != 0 ? s.sources.size == s.c.rows : same_shape(s.c, s.c_prev));
    for_each(s.c, [&](Index r, Index unit) {
      const Index from = s.sources.size != 0 ? at(s.sources, r) : r;
      if (is_masked(s.lengths, s.step, r)) {
        at(s.c, r, unit) = at(s.c_prev, from, unit);
        at(s.h, r, unit) = at(s.h_prev, from, unit);
        at(s.tanh_c, r, unit) = 0;
        if (!s.output.empty()) at(s.output, r, unit) = 0;
        return;
      }
      const auto pre = [&](Index gate) {
        const double rest = s.products.data != nullptr ? at(s.products, from, gate * units + unit) : 0;
        return at(s.gates, r, gate * units + unit) + rest + at(s.bias, 0, gate * units + unit);
      };
      const double i = sigmoid(pre(0));
      const double j = std::tanh(pre(1));
      const double f = sigmoid(pre(2) + s.forget_bias);
      const double o = sigmoid(pre(3));
      const double c = at(s.c_prev, from, unit) * f + i * j;
      const double tanh_c = std::tanh(c);
      at(s.gates, r, 0 * units + unit) = i;
      at(s.gates, r, 1 * units + unit) = j;
      at(s.gates, r, 2 * units + unit) = f;
      at(s.gates, r, 3 * units + unit) = o;
      at(s.c, r, unit) = c;
      at(s.tanh_c, r, unit) = tanh_c;
      at(s.h, r, unit) = o * tanh_c;
      if (!s.output.empty()) at(s.output, r, unit) = o * tanh_c;
    });
  }

  void lstm_cell_backward(const LstmStepBackward& s) override {
    const Index units = s.d_c.cols;
    assert(s.gates.cols == 4 * units && same_shape(s.d_c, s.c_prev) && same_shape(s.d_c, s.d_h));
    for_each(s.d_c, [&](Index r, Index unit) {
      if (is_masked(s.lengths, s.step, r)) {
        for (Index gate = 0; gate < 4; ++gate) at(s.gates, r, gate * units + unit) = 0;
        at(s.d_h_prev, r, unit) = at(s.d_h, r, unit);
        return;
      }
      const double i = at(s.gates, r, 0 * units + unit);
      const double j = at(s.gates, r, 1 * units + unit);
      const double f = at(s.gates, r, 2 * units + unit);
      const double o = at(s.gates, r, 3 * units + unit);
      const double tanh_c = at(s.tanh_c, r, unit);
      const double d_h = at(s.d_h, r, unit) + (s.d_output.empty() ? 0.0 : at(s.d_output, r, unit));
      const double d_c = at(s.d_c, r, unit) + d_h * o * (1 - tanh_c * tanh_c);
      at(s.gates, r, 0 * units + unit) = d_c * j * i * (1 - i);
      at(s.gates, r, 1 * units + unit) = d_c * i * (1 - j * j);
      at(s.gates, r, 2 * units + unit) = d_c * at(s.c_prev, r, unit) * f * (1 - f);
      at(s.gates, r, 3 * units + unit) = d_h * tanh_c * o * (1 - o);
      at(s.d_c, r, unit) = d_c * f;
      if (!s.d_h_prev.empty()) at(s.d_h_prev, r, unit) = 0;
    });
  }

  // Other cells ---------------------------------------------------------------------------------
  void cell_rows(CellOperation operation, const CellRows& rows) override {
    with_rows_of(operation, [&]<typename Operation>(const Operation&) {
      for (Index r = 0; r < rows.gates.rows; ++r)
        compute_cell_row<Operation, DoubleMath, CellRow<double>>(rows, r, OneThread());
    });
  }

  // Attention -----------------------------------------------------------------------------------
  void attention_forward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                         const Tensor& keys, const Tensor& memory, const Indices& lengths,
                         const Tensor& weights, const Tensor& context) override {
    assert(query.rows == context.rows && weights.rows == query.rows && weights.cols == shape.source_steps);
    for (Index r = 0; r < query.rows; ++r) {
      const Index sentence = sentence_of(shape, r);
      const Index length = at(lengths, sentence);
      double largest = -std::numeric_limits<double>::infinity();
      for (Index s = 0; s < length; ++s) {
        at(weights, r, s) = score_of(score, query, r, keys, source_row(shape, s, sentence));
        largest = std::max(largest, at(weights, r, s));
      }
      double sum = 0;
      for (Index s = 0; s < length; ++s) {
        at(weights, r, s) = std::exp(at(weights, r, s) - largest);
        sum += at(weights, r, s);
      }
      for (Index s = 0; s < shape.source_steps; ++s)
        at(weights, r, s) = s < length ? at(weights, r, s) / sum : 0.0;
      for (Index col = 0; col < context.cols; ++col) {
        double value = 0;
        for (Index s = 0; s < length; ++s)
          value += at(weights, r, s) * at(memory, source_row(shape, s, sentence), col);
        at(context, r, col) = value;
      }
    }
  }

  void attention_backward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                          const Tensor& keys, const Tensor& memory, const Indices& lengths,
                          const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                          const Tensor& d_query) override {
    assert(same_shape(weights, d_scores) && d_query.rows == d_context.rows && d_query.cols == keys.cols);
    for (Index r = 0; r < d_context.rows; ++r) {
      const Index sentence = sentence_of(shape, r);
      const Index length = at(lengths, sentence);
      double mean = 0;
      for (Index s = 0; s < length; ++s) {
        at(d_scores, r, s) = dot(d_context, r, memory, source_row(shape, s, sentence));
        mean += at(weights, r, s) * at(d_scores, r, s);
      }
      for (Index s = 0; s < shape.source_steps; ++s)
        at(d_scores, r, s) = s < length ? at(weights, r, s) * (at(d_scores, r, s) - mean) : 0.0;
      for (Index col = 0; col < d_query.cols; ++col) {
        double value = 0;
        for (Index s = 0; s < length; ++s)
          value +=
              at(d_scores, r, s) * score_slope(score, query, r, keys, source_row(shape, s, sentence), col);
        at(d_query, r, col) = value;
      }
    }
  }

  void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Indices& lengths,
                                 const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                                 const Tensor& d_keys, const Tensor& d_memory,
                                 const AttentionScore& d_score) override {
    assert(same_shape(keys, d_keys) && d_memory.rows == keys.rows && d_memory.cols == d_context.cols);
    zero(d_keys);
    zero(d_memory);
    for (Index r = 0; r < query.rows; ++r) {
      const Index sentence = sentence_of(shape, r);
      for (Index s = 0; s < at(lengths, sentence); ++s) {
        const Index row = source_row(shape, s, sentence);
        for (Index col = 0; col < keys.cols; ++col)
          at(d_keys, row, col) += at(d_scores, r, s) * score_slope(score, keys, row, query, r, col);
        for (Index col = 0; col < d_memory.cols; ++col)
          at(d_memory, row, col) += at(weights, r, s) * at(d_context, r, col);
        if (!score.scale.empty()) at(d_score.scale, 0, 0) += at(d_scores, r, s) * dot(query, r, keys, row);
        if (score.v.empty()) continue;
        for (Index col = 0; col < keys.cols; ++col)
          at(d_score.v, 0, col) += at(d_scores, r, s) * std::tanh(at(query, r, col) + at(keys, row, col));
      }
    }
  }

  void scaled_direction(const Tensor& v, const Tensor& g, const Tensor& out) override {
    const double factor = at(g, 0, 0) / std::sqrt(dot(v, 0, v, 0));
    for_each(v, [&](Index, Index c) { at(out, 0, c) = factor * at(v, 0, c); });
  }

  void scaled_direction_backward(const Tensor& v, const Tensor& g, const Tensor& d_out, const Tensor& d_v,
                                 const Tensor& d_g) override {
    const double length = std::sqrt(dot(v, 0, v, 0));
    const double along = dot(d_out, 0, v, 0) / length;
    at(d_g, 0, 0) += along;
    for_each(v, [&](Index, Index c) {
      at(d_v, 0, c) += at(g, 0, 0) / length * (at(d_out, 0, c) - along * at(v, 0, c) / length);
    });
  }

  // Loss ----------------------------------------------------------------------------------------
  [[nodiscard]] std::int64_t logits_rows(std::int64_t) const override { return 32; }

  void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                             const Tensor& gradient, const double* scale, const Tensor& sums) override {
    const double factor = scale != nullptr ? *scale : 1.0;
    assert(targets.size == logits.rows && (gradient.data == nullptr || gradient.data == logits.data) &&
           sums.size() == 2 && sums.contiguous());
    const auto vocabulary = static_cast<double>(logits.cols);
    double* const sum = sums.as<double>();
    for (Index r = 0; r < logits.rows; ++r) {
      const Index target = at(targets, r);
      if (target < 0) {
        for (Index v = 0; gradient.data != nullptr && v < logits.cols; ++v) at(logits, r, v) = 0;
        continue;
      }
      const double largest = row_max(logits, r);
      const double normaliser = log_sum_exp(logits, r, largest);
      const auto log_probability = [&](Index v) { return at(logits, r, v) - largest - normaliser; };
      double mean_loss = 0;
      for (Index v = 0; v < logits.cols; ++v) mean_loss -= log_probability(v) / vocabulary;
      sum[0] -= log_probability(target);
      sum[1] += label_smoothing * mean_loss - (1 - label_smoothing) * log_probability(target);
      if (gradient.data == nullptr) continue;
      for (Index v = 0; v < logits.cols; ++v) {
        const double wanted = (v == target ? 1 - label_smoothing : 0.0) + label_smoothing / vocabulary;
        at(logits, r, v) = factor * (std::exp(log_probability(v)) - wanted);
      }
    }
  }

  void log_softmax(const Tensor& logits) override {
    for (Index r = 0; r < logits.rows; ++r) {
      const double largest = row_max(logits, r);
      const double normaliser = log_sum_exp(logits, r, largest);
      for (Index v = 0; v < logits.cols; ++v) at(logits, r, v) = at(logits, r, v) - largest - normaliser;
    }
  }
  void best_log_softmax(const Tensor& logits, Index, Index, std::int32_t also, const Tensor& best) override {
    const Index count = (best.cols - 3) / 2;
    std::vector<Index> columns(static_cast<std::size_t>(logits.cols));
    for (Index r = 0; r < logits.rows; ++r) {
      const double largest = row_max(logits, r);
      const double normaliser = log_sum_exp(logits, r, largest);
      std::iota(columns.begin(), columns.end(), Index{0});
      std::ranges::stable_sort(columns, std::greater(), [&](Index v) { return at(logits, r, v); });
      for (Index i = 0; i < count; ++i) {
        const Index v = columns[static_cast<std::size_t>(i)];
        at(best, r, i) = static_cast<double>(v);
        at(best, r, count + i) = at(logits, r, v) - largest - normaliser;
      }
      at(best, r, 2 * count) = at(logits, r, also) - largest - normaliser;
    }
  }
  void log_add_exp(const Tensor& from, const Tensor& to) override {
    assert(same_shape(from, to));
    for_each(to, [&](Index r, Index c) { at(to, r, c) = nmt::log_add_exp(at(to, r, c), at(from, r, c)); });
  }
  void draw_columns(const Tensor& log_probabilities, const double* numbers, double temperature,
                    std::int32_t excluded, const Tensor& drawn) override {
    assert(drawn.rows == log_probabilities.rows && drawn.cols == 2);
    for (Index r = 0; r < drawn.rows; ++r)
      draw_column(&at(log_probabilities, r, 0), log_probabilities.cols, numbers[r], temperature, excluded,
                  &at(drawn, r, 0), OneThread());
  }

  // Optimisers ----------------------------------------------------------------------------------
  void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings,
              std::span<const UpdateRange> ranges) override {
    const StepFactors given = given_factors(settings);
    for (const UpdateRange& range : ranges) {
      const UpdateTensors part = part_of(tensors, range);
      const StepFactors step = step_of(settings, range.layer, given);
      if (step.takes) {
        with_rule(rule, [&]<typename Rule>(const Rule&) {
          update_part<Rule>(part, range, settings, step, tensors.sums);
        });
      }
      if (settings.zero_gradients) zero(part.gradients);
    }
  }

  void largest_magnitude(const Tensor& x, const Tensor& result) override {
    double& largest = *result.as<double>();
    for_each(x, [&](Index r, Index c) { largest = std::max(largest, std::abs(at(x, r, c))); });
  }

 private:
  template <typename Rule>
  static void update_part(const UpdateTensors& part, const UpdateRange& range, const UpdateSettings& settings,
                          const StepFactors& step, const Tensor& sums) {
    const auto factors = factors_of<double>(settings, range.decays, step);
    const UpdateArrays<double> arrays(part);
    double values = 0, measured = 0;
    for (Index i = 0; i < range.count; ++i) {
      const UpdateElement<double> e = arrays.update<Rule, DoubleMath, false>(factors, i);
      values += e.value * e.value;
      measured += e.measured * e.measured;
    }
    if constexpr (Rule::use.measures) {
      at(sums, range.layer, 0) += range.sums_share * values;
      at(sums, range.layer, 1) += range.sums_share * measured;
    }
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace nmt
