#include "nmt_example/model/layer_norm_lstm_cell.hpp"

namespace nmt {

using enum Transpose;

LayerNormLstmCell::LayerNormLstmCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs,
                                     std::int64_t units, double forget_bias)
    : Cell(units),
      kernel_(layout.declare(name + "/kernel", inputs + units, 4 * units)),
      gain_(layout.declare(name + "/gain", 1, 5 * units, 1)),
      shift_(layout.declare(name + "/shift", 1, 5 * units, 0)),
      forget_bias_(forget_bias) {}

void LayerNormLstmCell::project(const StepContext& step, const Tensor& x, const Tensor& gates) const {
  step.backend.multiply(x, no, first_rows(step.value(kernel_), x.cols), false, gates);
}

void LayerNormLstmCell::forward(const StepContext& step, const CellStep& s) const {
  const Tensor kernel = step.value(kernel_);
  if (!s.from_zero) {
    step.backend.multiply(s.input, no, last_rows(kernel, s.input.cols), s.input.cols < kernel.rows, s.gates);
  }
  step.backend.cell_rows(CellOperation::layer_norm_lstm, {.units = units(),
                                                          .gates = s.gates,
                                                          .saved = s.saved,
                                                          .bias = step.value(shift_),
                                                          .gain = step.value(gain_),
                                                          .h_before = s.before.h,
                                                          .c_before = s.before.c,
                                                          .h = s.after.h,
                                                          .c = s.after.c,
                                                          .output = s.output,
                                                          .lengths = s.lengths,
                                                          .step = s.step,
                                                          .forget_bias = forget_bias_});
}

void LayerNormLstmCell::backward(const StepContext& step, const CellStepBackward& s) const {
  step.backend.cell_rows(CellOperation::layer_norm_lstm_backward, {.units = units(),
                                                                   .gates = s.gates,
                                                                   .saved = s.saved,
                                                                   .scratch = s.scratch,
                                                                   .bias = step.value(shift_),
                                                                   .gain = step.value(gain_),
                                                                   .c_before = s.before.c,
                                                                   .c = s.after.c,
                                                                   .d_output = s.d_output,
                                                                   .d_h = s.d_state.h,
                                                                   .d_c = s.d_state.c,
                                                                   .lengths = s.lengths,
                                                                   .step = s.step,
                                                                   .forget_bias = forget_bias_});
  step.backend.add_column_sums(s.scratch, s.sums);
  // Masked rows keep the gradient of h, to which zeros are added.
  step.backend.multiply(s.gates, yes, last_rows(step.value(kernel_), s.d_input.cols), s.lengths.size != 0,
                        s.d_input);
}

void LayerNormLstmCell::add_gradients(const StepContext& step, const CellSequence& s) const {
  const Tensor d_kernel = step.gradient(kernel_);
  if (!s.ahead.empty()) {
    step.backend.gemm(yes, no, s.ahead, s.gates, true, first_rows(d_kernel, s.ahead.cols));
  }
  step.backend.gemm(yes, no, s.input, s.gates, true, last_rows(d_kernel, s.input.cols));
  step.backend.add(s.sums, step.gradient(shift_));
  step.backend.add_column_sums(s.saved.col_range(0, 5 * units()), step.gradient(gain_));
  for (const std::size_t parameter : {shift_, gain_, kernel_}) step.added_gradient(parameter);
}

void LayerNormLstmCell::project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const {
  step.backend.multiply(gates, yes, first_rows(step.value(kernel_), d_x.cols), false, d_x);
}

}  // namespace nmt
