#include "nmt_example/model/projection.hpp"

#include <algorithm>
#include <cmath>

namespace nmt {
namespace {

/// A logit that no softmax sees.
constexpr double never = -1e30;

/// A tensor of another type, no wider, whose rows begin where those of `x` do.
Tensor in_place_of(const Tensor& x, ddl::DataType type) {
  const auto each = static_cast<std::int64_t>(ddl::size_of(x.type) / ddl::size_of(type));
  return {x.data, x.rows, x.cols, x.stride * each, type};
}

/// With as many rows or columns, which are in memory.
Tensor with_rows(const Tensor& x, std::int64_t rows) { return {x.data, rows, x.cols, x.stride, x.type}; }
Tensor with_cols(const Tensor& x, std::int64_t cols) { return {x.data, x.rows, cols, x.stride, x.type}; }

/// A bias with a row for each word, as the kernel has.
Tensor by_word(const Tensor& bias) { return bias.reshaped(bias.cols, 1); }

}  // namespace

OutputProjection::OutputProjection(ParameterLayout& layout, const ModelShape& shape, std::int64_t inputs)
    : inputs_(inputs),
      vocabulary_(shape.target_vocabulary),
      kernel_(layout.declare(shape.tie_output ? embedding_name(shape, Side::decoder) : "projection/kernel",
                             vocabulary_, inputs)) {
  if (shape.output_bias) bias_ = layout.declare("projection/bias", 1, vocabulary_, 0);
  if (shape.sampled_words > 0) sampled_.emplace(vocabulary_, shape.sampled_words);
}

OutputProjection::Weights OutputProjection::all_words(const StepContext& step) const {
  const std::int64_t rows = aligned_stride(vocabulary_);
  return {true,
          vocabulary_,
          with_rows(step.value(kernel_), rows),
          bias_ ? step.value(*bias_) : Tensor(),
          with_rows(step.gradient(kernel_), rows),
          bias_ ? step.gradient(*bias_) : Tensor()};
}

OutputProjection::Weights OutputProjection::some_words(const StepContext& step, std::int64_t first,
                                                       std::int64_t count) const {
  Weights weights = all_words(step);
  weights.words = count;
  weights.kernel = weights.kernel.row_range(first, aligned_stride(count));
  if (bias_) weights.bias = weights.bias.col_range(first, count);
  return weights;
}

void OutputProjection::multiply(Backend& backend, const Weights& weights, const Tensor& a, Transpose t,
                                const Tensor& c) {
  weights.are_parameters ? backend.multiply(a, t, weights.kernel, false, c)
                         : backend.gemm(Transpose::no, t, a, weights.kernel, false, c);
}

void OutputProjection::compute_logits(Backend& backend, const Weights& weights, const Tensor& input,
                                      const Tensor& logits) {
  multiply(backend, weights, input, Transpose::yes, with_cols(logits, weights.kernel.rows));
  if (!weights.bias.empty()) backend.add_row(weights.bias, logits);
}

void OutputProjection::plan(Arena& arena, const Backend& backend, std::int64_t rows, bool training) {
  compact_ = arena.take(rows, inputs_);
  logits_ = arena.take_full(std::min(rows, backend.logits_rows(vocabulary_)), aligned_stride(vocabulary_));
  if (!training) return;
  d_compact_ = arena.take(rows, inputs_);
  if (!sampled_) return;
  const std::int64_t most = std::min(sampled_->drawn() + rows, vocabulary_);
  ids_ = arena.take_indices(most);
  places_ = arena.take_indices(rows);
  sampled_kernel_ = arena.take(most, inputs_);
  d_sampled_kernel_ = arena.take_full(most, inputs_);
  sampled_bias_ = arena.take_full(1, most);
  host_places_.reserve(static_cast<std::size_t>(rows));
  host_bias_.reserve(static_cast<std::size_t>(most));
  if (!bias_) return;
  d_sampled_bias_ = arena.take_full(1, most);
  bias_part_ = arena.take_full(1, most);
}

/// Draws the step's words, and gathers their weights and those of the batch's other targets.
OutputProjection::Weights OutputProjection::sampled_words(const StepContext& step,
                                                          std::span<const std::int32_t> words) {
  Backend& backend = step.backend;
  sampled_->draw(step.dropout.seed, step.dropout.step);
  host_places_.clear();
  for (const std::int32_t word : words) host_places_.push_back(sampled_->place_of(word));
  host_bias_.clear();
  for (const std::int32_t id : sampled_->ids())
    host_bias_.push_back(static_cast<float>(-std::log(sampled_->expected_count(id))));

  const auto count = static_cast<std::int64_t>(sampled_->ids().size());
  const Indices ids = ids_.range(0, count);
  const auto bias = [&](const Tensor& memory) { return bias_ ? memory.col_range(0, count) : Tensor(); };
  const Weights weights{false,
                        count,
                        sampled_kernel_.row_range(0, count),
                        sampled_bias_.col_range(0, count),
                        d_sampled_kernel_.row_range(0, count),
                        bias(d_sampled_bias_)};
  backend.upload(ids, sampled_->ids());
  backend.upload(places_.range(0, static_cast<std::int64_t>(words.size())), host_places_);
  backend.gather_rows(step.value(kernel_), ids, weights.kernel);
  backend.upload(weights.bias, host_bias_);
  if (bias_) {
    backend.gather_rows(by_word(step.value(*bias_)), ids, by_word(bias(bias_part_)));
    backend.add(bias(bias_part_), weights.bias);
    backend.zero(weights.d_bias);
  }
  backend.zero(weights.d_kernel);
  return weights;
}

void OutputProjection::add_sampled_gradients(const StepContext& step, const Weights& weights) {
  Backend& backend = step.backend;
  const Indices ids = ids_.range(0, weights.bias.cols);
  backend.embedding_backward(weights.d_kernel, ids, step.gradient(kernel_));
  if (bias_) backend.embedding_backward(by_word(weights.d_bias), ids, by_word(step.gradient(*bias_)));
}

void OutputProjection::loss(const StepContext& step, const Tensor& output, const Indices& rows,
                            const Indices& targets, std::span<const std::int32_t> words,
                            double label_smoothing, const Tensor& d_output, const double* scale,
                            const Tensor& sums) {
  Backend& backend = step.backend;
  const bool gradient = d_output.data != nullptr;
  const bool samples = gradient && sampled_;
  const Tensor compact = compact_.row_range(0, rows.size);
  backend.gather_rows(output, rows, compact);
  const Weights weights = samples ? sampled_words(step, words) : all_words(step);
  const std::int64_t stride = aligned_stride(weights.words);
  const std::int64_t most = std::min(rows.size, logits_.size() / stride);
  // Blocks of equal size, or nearly so.
  const std::int64_t blocks = rows.size == 0 ? 0 : (rows.size + most - 1) / most;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = rows.size * block / blocks;
    const std::int64_t count = rows.size * (block + 1) / blocks - begin;
    const Tensor input = compact.row_range(begin, count);
    const Tensor logits = {logits_.data, count, weights.words, stride, logits_.type};
    const Tensor d_logits = gradient ? in_place_of(logits, input.type) : Tensor();
    const Indices wanted = (samples ? places_ : targets).range(begin, count);
    compute_logits(backend, weights, input, logits);
    // A target that was not drawn competes in its own rows alone.
    if (samples) backend.fill_columns_but(logits, sampled_->drawn(), wanted, never);
    backend.softmax_cross_entropy(logits, wanted, label_smoothing, d_logits, scale, sums);
    if (!gradient) continue;
    if (samples) backend.fill_columns_but(d_logits, sampled_->drawn(), wanted, 0);
    if (!weights.d_bias.empty()) backend.add_column_sums(d_logits, weights.d_bias);
    const Tensor d_products = with_cols(d_logits, weights.kernel.rows);
    backend.zero(d_products.col_range(weights.words, weights.kernel.rows - weights.words));
    backend.gemm(Transpose::yes, Transpose::no, d_products, input, true, weights.d_kernel);
    multiply(backend, weights, d_products, Transpose::no, d_compact_.row_range(begin, count));
  }
  if (!gradient) return;
  if (samples) add_sampled_gradients(step, weights);
  if (bias_) step.added_gradient(*bias_);
  step.added_gradient(kernel_);
  backend.zero(d_output);
  backend.scatter_rows(d_compact_.row_range(0, rows.size), rows, d_output);
}

void OutputProjection::log_probabilities(const StepContext& step, const Tensor& output,
                                         const Tensor& log_probs) {
  compute_logits(step.backend, all_words(step), output, log_probs);
  step.backend.log_softmax(log_probs);
}

void OutputProjection::best_words(const StepContext& step, const Tensor& output, std::int32_t also,
                                  const Tensor& logits, const Tensor& best) {
  const auto [rows, columns] = step.backend.best_block();
  for (std::int64_t first = 0, count = 0; first < vocabulary_; first += count) {
    count = std::min(columns, vocabulary_ - first);
    const Weights weights = some_words(step, first, count);
    for (std::int64_t begin = 0, n = 0; begin < output.rows; begin += n) {
      n = std::min(rows, output.rows - begin);
      const Tensor block{logits.data, n, count, aligned_stride(count), logits.type};
      compute_logits(step.backend, weights, output.row_range(begin, n), block);
      step.backend.best_log_softmax(block, first, vocabulary_, also, best.row_range(begin, n));
    }
  }
}

}  // namespace nmt
