#include "nmt_example/model/projection.hpp"

#include <algorithm>

namespace nmt {
namespace {

/// A tensor of another type, no wider, whose rows begin where those of `x` do.
Tensor in_place_of(const Tensor& x, ddl::DataType type) {
  const auto each = static_cast<std::int64_t>(ddl::size_of(x.type) / ddl::size_of(type));
  return {x.data, x.rows, x.cols, x.stride * each, type};
}

}  // namespace

OutputProjection::OutputProjection(ParameterLayout& layout, const ModelShape& shape, std::int64_t inputs)
    : inputs_(inputs),
      vocabulary_(shape.target_vocabulary),
      tied_(shape.tie_output),
      kernel_(tied_ ? layout.declare(embedding_name(shape, Side::decoder), vocabulary_, inputs)
                    : layout.declare("projection/kernel", inputs, vocabulary_)) {
  if (shape.output_bias) bias_ = layout.declare("projection/bias", 1, vocabulary_, 0);
}

void OutputProjection::multiply(const StepContext& step, const Tensor& input, const Tensor& logits) const {
  step.backend.multiply(input, tied_ ? Transpose::yes : Transpose::no, step.value(kernel_), false, logits);
  if (bias_) step.backend.add_row(step.value(*bias_), logits);
}

void OutputProjection::plan(Arena& arena, const Backend& backend, std::int64_t rows, bool training) {
  compact_ = arena.take(rows, inputs_);
  logits_ = arena.take_full(std::min(rows, backend.logits_rows(vocabulary_)), vocabulary_);
  if (training) d_compact_ = arena.take(rows, inputs_);
}

void OutputProjection::loss(const StepContext& step, const Tensor& output, const Indices& rows,
                            const Indices& targets, double label_smoothing, const Tensor& d_output,
                            double scale, const Tensor& sums) {
  Backend& backend = step.backend;
  const bool gradient = d_output.data != nullptr;
  const Tensor compact = compact_.row_range(0, rows.size);
  backend.gather_rows(output, rows, compact);
  // Blocks of equal size, or nearly so.
  const std::int64_t blocks = (rows.size + logits_.rows - 1) / logits_.rows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = rows.size * block / blocks;
    const std::int64_t count = rows.size * (block + 1) / blocks - begin;
    const Tensor input = compact.row_range(begin, count);
    const Tensor logits = logits_.row_range(0, count);
    multiply(step, input, logits);
    const Tensor d_logits = gradient ? in_place_of(logits, input.type) : Tensor();
    backend.softmax_cross_entropy(logits, targets.range(begin, count), label_smoothing, d_logits, scale,
                                  sums);
    if (!gradient) continue;
    if (bias_) backend.add_column_sums(d_logits, step.gradient(*bias_));
    const Tensor d_kernel = step.gradient(kernel_);
    tied_ ? backend.gemm(Transpose::yes, Transpose::no, d_logits, input, true, d_kernel)
          : backend.gemm(Transpose::yes, Transpose::no, input, d_logits, true, d_kernel);
    backend.multiply(d_logits, tied_ ? Transpose::no : Transpose::yes, step.value(kernel_), false,
                     d_compact_.row_range(begin, count));
  }
  if (!gradient) return;
  if (bias_) step.added_gradient(*bias_);
  step.added_gradient(kernel_);
  backend.zero(d_output);
  backend.scatter_rows(d_compact_.row_range(0, rows.size), rows, d_output);
}

void OutputProjection::log_probabilities(const StepContext& step, const Tensor& output,
                                         const Tensor& log_probs) {
  multiply(step, output, log_probs);
  step.backend.log_softmax(log_probs);
}

}  // namespace nmt
