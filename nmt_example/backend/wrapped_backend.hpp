#pragma once

#include <string_view>
#include <utility>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/update_rules.hpp"

namespace nmt {

/// What one call of a backend does.
struct Work {
  std::string_view operation;
  double flops = 0;                            ///< Of a product: 2 rows cols inner.
  double bytes = 0;                            ///< Of memory that is read or written, each once.
  std::int64_t rows = 0, cols = 0, inner = 0;  ///< Of a product.
  Transpose ta = Transpose::no, tb = Transpose::no;
  ddl::DataType type = ddl::DataType::f32;  ///< Of a product's factors.
};

/// A backend whose computations are another one's, with something around each of them.
class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] ddl::DataType type() const override { return inner_->type(); }
  [[nodiscard]] ddl::DataType narrow_type() const override { return inner_->narrow_type(); }
  [[nodiscard]] bool host_accessible() const override { return inner_->host_accessible(); }
  [[nodiscard]] CUstream_st* stream() const override { return inner_->stream(); }

  void side_by_side(const std::function<void()>& first, const std::function<void()>& second) override {
    inner_->side_by_side(first, second);
  }
  void wavefront(std::size_t layers, std::size_t chunks,
                 const std::function<void(std::size_t, std::size_t)>& work) override {
    inner_->wavefront(layers, chunks, work);
  }
  [[nodiscard]] std::int64_t chunk_steps(std::int64_t steps) const override {
    return inner_->chunk_steps(steps);
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::shared_ptr<void> allocate_host(std::size_t bytes) override { return inner_->allocate_host(bytes); }
  void upload(const Tensor& to, std::span<const float> from) override {
    call({.operation = "upload", .bytes = bytes_of(to)}, [&] { inner_->upload(to, from); });
  }
  void upload_bytes(void* to, std::span<const std::byte> from) override {
    call({.operation = "upload", .bytes = static_cast<double>(from.size())},
         [&] { inner_->upload_bytes(to, from); });
  }
  void download(const Tensor& from, std::span<float> to) override {
    call({.operation = "download", .bytes = bytes_of(from)}, [&] { inner_->download(from, to); });
  }
  void download(const Tensor& from, std::span<double> to) override {
    call({.operation = "download", .bytes = bytes_of(from)}, [&] { inner_->download(from, to); });
  }
  void download_bytes(const void* from, std::span<std::byte> to) override {
    call({.operation = "download", .bytes = static_cast<double>(to.size())},
         [&] { inner_->download_bytes(from, to); });
  }
  void zero(const Tensor& x) override {
    call({.operation = "zero", .bytes = bytes_of(x)}, [&] { inner_->zero(x); });
  }
  void copy(const Tensor& from, const Tensor& to) override {
    call({.operation = "copy", .bytes = bytes_of(from, to)}, [&] { inner_->copy(from, to); });
  }
  void add(const Tensor& from, const Tensor& to) override {
    call({.operation = "add", .bytes = bytes_of(from, to, to)}, [&] { inner_->add(from, to); });
  }
  void gather_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    call({.operation = "gather_rows", .bytes = bytes_of(to, to, rows)},
         [&] { inner_->gather_rows(from, rows, to); });
  }
  void scatter_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    call({.operation = "scatter_rows", .bytes = bytes_of(from, from, rows)},
         [&] { inner_->scatter_rows(from, rows, to); });
  }
  void fill_columns_but(const Tensor& x, std::int64_t first, const Indices& kept, double value) override {
    call({.operation = "fill_columns_but", .bytes = bytes_of(x)},
         [&] { inner_->fill_columns_but(x, first, kept, value); });
  }
  void parameters_changed() override { inner_->parameters_changed(); }
  [[nodiscard]] std::size_t product_bytes() const override { return inner_->product_bytes(); }
  void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
            const Tensor& c) override {
    call(product(ta, tb, a, b, c), [&] { inner_->gemm(ta, tb, a, b, accumulate, c); });
  }
  void multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                const Tensor& c) override {
    call(product(Transpose::no, tb, a, parameter, c),
         [&] { inner_->multiply(a, tb, parameter, accumulate, c); });
  }
  void add_row(const Tensor& row, const Tensor& to) override {
    call({.operation = "add_row", .bytes = bytes_of(to, to, row)}, [&] { inner_->add_row(row, to); });
  }
  void add_column_sums(const Tensor& x, const Tensor& to) override {
    call({.operation = "add_column_sums", .bytes = bytes_of(x, to)}, [&] { inner_->add_column_sums(x, to); });
  }
  void embedding_backward(const Tensor& gradient, const Indices& ids, const Tensor& table_gradient) override {
    call({.operation = "embedding_backward", .bytes = bytes_of(gradient, gradient, gradient, ids)},
         [&] { inner_->embedding_backward(gradient, ids, table_gradient); });
  }
  void dropout(const Tensor& x, const Tensor& y, const PhiloxKey* key, double rate, const Indices& samples,
               std::int64_t first_position, std::int64_t first_column) override {
    call({.operation = "dropout", .bytes = bytes_of(x, y)},
         [&] { inner_->dropout(x, y, key, rate, samples, first_position, first_column); });
  }
  void lstm_cell_forward(const LstmStep& s) override {
    call({.operation = "lstm_cell_forward",
          .bytes = bytes_of(s.gates, s.gates, s.products, s.c_prev, s.c, s.h, s.tanh_c, s.output)},
         [&] { inner_->lstm_cell_forward(s); });
  }
  void lstm_cell_backward(const LstmStepBackward& s) override {
    call({.operation = "lstm_cell_backward",
          .bytes =
              bytes_of(s.gates, s.gates, s.c_prev, s.tanh_c, s.d_output, s.d_h, s.d_h_prev, s.d_c, s.d_c)},
         [&] { inner_->lstm_cell_backward(s); });
  }
  void cell_rows(CellOperation operation, const CellRows& r) override {
    call({.operation = "cell_rows",
          .bytes = bytes_of(r.gates, r.saved, r.h_before, r.c_before, r.h, r.c, r.output, r.d_output, r.d_h,
                            r.d_c)},
         [&] { inner_->cell_rows(operation, r); });
  }
  void attention_forward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                         const Tensor& keys, const Tensor& memory, const Indices& lengths,
                         const Tensor& weights, const Tensor& context) override {
    call({.operation = "attention_forward", .bytes = bytes_of(query, keys, memory, weights, context)},
         [&] { inner_->attention_forward(shape, score, query, keys, memory, lengths, weights, context); });
  }
  void attention_backward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                          const Tensor& keys, const Tensor& memory, const Indices& lengths,
                          const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                          const Tensor& d_query) override {
    call({.operation = "attention_backward",
          .bytes = bytes_of(query, keys, memory, weights, d_context, d_scores, d_query)},
         [&] {
           inner_->attention_backward(shape, score, query, keys, memory, lengths, weights, d_context,
                                      d_scores, d_query);
         });
  }
  void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Indices& lengths,
                                 const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                                 const Tensor& d_keys, const Tensor& d_memory,
                                 const AttentionScore& d_score) override {
    call({.operation = "attention_memory_backward",
          .bytes = bytes_of(query, keys, weights, d_scores, d_context, d_keys, d_memory)},
         [&] {
           inner_->attention_memory_backward(shape, score, query, keys, lengths, weights, d_scores, d_context,
                                             d_keys, d_memory, d_score);
         });
  }
  void scaled_direction(const Tensor& v, const Tensor& g, const Tensor& out) override {
    call({.operation = "scaled_direction", .bytes = bytes_of(v, out)},
         [&] { inner_->scaled_direction(v, g, out); });
  }
  void scaled_direction_backward(const Tensor& v, const Tensor& g, const Tensor& d_out, const Tensor& d_v,
                                 const Tensor& d_g) override {
    call({.operation = "scaled_direction_backward", .bytes = bytes_of(v, d_out, d_v)},
         [&] { inner_->scaled_direction_backward(v, g, d_out, d_v, d_g); });
  }
  [[nodiscard]] std::int64_t logits_rows(std::int64_t vocabulary) const override {
    return inner_->logits_rows(vocabulary);
  }
  void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                             const Tensor& gradient, const double* scale, const Tensor& sums) override {
    call({.operation = "softmax_cross_entropy", .bytes = bytes_of(logits, logits)},
         [&] { inner_->softmax_cross_entropy(logits, targets, label_smoothing, gradient, scale, sums); });
  }
  void log_softmax(const Tensor& logits) override {
    call({.operation = "log_softmax", .bytes = bytes_of(logits, logits)},
         [&] { inner_->log_softmax(logits); });
  }
  [[nodiscard]] LogitsBlock best_block() const override { return inner_->best_block(); }
  void best_log_softmax(const Tensor& logits, std::int64_t first, std::int64_t vocabulary, std::int32_t also,
                        const Tensor& best) override {
    call({.operation = "best_log_softmax", .bytes = bytes_of(logits, best)},
         [&] { inner_->best_log_softmax(logits, first, vocabulary, also, best); });
  }
  void log_add_exp(const Tensor& from, const Tensor& to) override {
    call({.operation = "log_add_exp", .bytes = bytes_of(from, to, to)},
         [&] { inner_->log_add_exp(from, to); });
  }
  void draw_columns(const Tensor& log_probabilities, const double* numbers, double temperature,
                    std::int32_t excluded, const Tensor& drawn) override {
    call({.operation = "draw_columns", .bytes = bytes_of(log_probabilities, drawn)},
         [&] { inner_->draw_columns(log_probabilities, numbers, temperature, excluded, drawn); });
  }
  void update(UpdateRule rule, const UpdateTensors& t, const UpdateSettings& settings,
              std::span<const UpdateRange> ranges) override {
    double bytes = 0;
    for (const UpdateRange& range : ranges) {
      const UpdateTensors part = part_of(t, range);
      bytes += bytes_of(part.values, part.values, part.gradients, part.m, part.m, part.v, part.v);
    }
    call({.operation = "update", .bytes = bytes}, [&] { inner_->update(rule, t, settings, ranges); });
  }
  void scale_layers(const LayerScaling& scaling, const StepFactors* step, const Tensor& sums,
                    float* second_moments, Layer* layers) override {
    call({.operation = "scale_layers", .bytes = bytes_of(sums)},
         [&] { inner_->scale_layers(scaling, step, sums, second_moments, layers); });
  }
  void largest_magnitude(const Tensor& x, const Tensor& result) override {
    call({.operation = "largest_magnitude", .bytes = bytes_of(x)},
         [&] { inner_->largest_magnitude(x, result); });
  }
  void end_step(const StepRules& rules, const StepInput& input, StepState* state,
                StepRecord* record) override {
    call({.operation = "end_step"}, [&] { inner_->end_step(rules, input, state, record); });
  }

 protected:
  [[nodiscard]] Backend& inner() noexcept { return *inner_; }
  virtual void before(const Work& work) = 0;
  virtual void after(const Work& work) = 0;

 private:
  static double bytes_of(const Tensor& x) {
    return x.data == nullptr ? 0.0
                             : static_cast<double>(x.size()) * static_cast<double>(ddl::size_of(x.type));
  }
  static double bytes_of(const Indices& x) { return static_cast<double>(x.size) * sizeof(std::int32_t); }
  template <typename... Tensors>
  static double bytes_of(const Tensor& first, const Tensors&... others) {
    return bytes_of(first) + (bytes_of(others) + ...);
  }
  static Work product(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, const Tensor& c) {
    const std::int64_t inner = ta == Transpose::yes ? a.rows : a.cols;
    return {.operation = "product",
            .flops = 2.0 * static_cast<double>(c.size()) * static_cast<double>(inner),
            .bytes = bytes_of(a, b, c),
            .rows = c.rows,
            .cols = c.cols,
            .inner = inner,
            .ta = ta,
            .tb = tb,
            .type = a.type};
  }
  template <typename Operation>
  void call(const Work& work, Operation operation) {
    before(work);
    operation();
    after(work);
  }

  std::unique_ptr<Backend> inner_;
};

}  // namespace nmt
