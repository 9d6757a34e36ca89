#include "nmt_example/model/projection.hpp"

#include <algorithm>

namespace nmt {

OutputProjection::OutputProjection(ParameterLayout& layout, std::int64_t inputs, std::int64_t vocabulary)
    : inputs_(inputs),
      vocabulary_(vocabulary),
      kernel_(layout.declare("projection/kernel", inputs, vocabulary)) {}

std::int64_t OutputProjection::rows_at_a_time() const noexcept {
  constexpr std::int64_t elements = std::int64_t{1} << 21;  // 8 MiB of logits fit into the last-level cache
  return std::clamp<std::int64_t>(elements / vocabulary_, 32, 1024);
}

void OutputProjection::plan(Arena& arena, std::int64_t rows, bool training) {
  compact_ = arena.take(rows, inputs_);
  logits_ = arena.take(std::min(rows, rows_at_a_time()), vocabulary_);
  if (training) d_compact_ = arena.take(rows, inputs_);
}

void OutputProjection::loss(const StepContext& step, const Tensor& output, const Indices& rows,
                            const Indices& targets, double label_smoothing, const Tensor& d_output,
                            const Tensor& sums) {
  Backend& backend = step.backend;
  const Tensor kernel = step.value(kernel_);
  const bool gradient = d_output.data != nullptr;
  const Tensor compact = compact_.row_range(0, rows.size);
  backend.gather_rows(output, rows, compact);
  for (std::int64_t begin = 0; begin < rows.size; begin += logits_.rows) {
    const std::int64_t count = std::min(logits_.rows, rows.size - begin);
    const Tensor input = compact.row_range(begin, count);
    const Tensor logits = logits_.row_range(0, count);
    backend.gemm(Transpose::no, Transpose::no, input, kernel, false, logits);
    backend.softmax_cross_entropy(logits, targets.range(begin, count), label_smoothing, gradient, sums);
    if (!gradient) continue;
    backend.gemm(Transpose::yes, Transpose::no, input, logits, true, step.gradient(kernel_));
    backend.gemm(Transpose::no, Transpose::yes, logits, kernel, false, d_compact_.row_range(begin, count));
  }
  if (!gradient) return;
  step.added_gradient(kernel_);
  backend.zero(d_output);
  backend.scatter_rows(d_compact_.row_range(0, rows.size), rows, d_output);
}

void OutputProjection::log_probabilities(const StepContext& step, const Tensor& output,
                                         const Tensor& log_probs) {
  step.backend.gemm(Transpose::no, Transpose::no, output, step.value(kernel_), false, log_probs);
  step.backend.log_softmax(log_probs);
}

}  // namespace nmt
