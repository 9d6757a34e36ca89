#include "nmt_example/model/nas_cell.hpp"

namespace nmt {

using enum Transpose;

NasCell::NasCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units)
    : Cell(units),
      kernel_(layout.declare(name + "/kernel", inputs, 8 * units)),
      recurrent_kernel_(layout.declare(name + "/recurrent_kernel", units, 8 * units)) {}

void NasCell::project(const StepContext& step, const Tensor& x, const Tensor& gates) const {
  step.backend.multiply(x, no, first_rows(step.value(kernel_), x.cols), false, gates);
}

void NasCell::forward(const StepContext& step, const CellStep& s) const {
  const Tensor kernel = step.value(kernel_), inputs = inputs_of(s.input);
  if (!inputs.empty()) {
    step.backend.multiply(inputs, no, last_rows(kernel, inputs.cols), inputs.cols < kernel.rows, s.gates);
  }
  if (s.from_zero) {
    step.backend.zero(s.saved);
  } else {
    step.backend.multiply(s.before.h, no, step.value(recurrent_kernel_), false, s.saved);
  }
  step.backend.cell_rows(CellOperation::nas, {.units = units(),
                                              .gates = s.gates,
                                              .saved = s.saved,
                                              .h_before = s.before.h,
                                              .c_before = s.before.c,
                                              .h = s.after.h,
                                              .c = s.after.c,
                                              .output = s.output,
                                              .lengths = s.lengths,
                                              .step = s.step});
}

void NasCell::backward(const StepContext& step, const CellStepBackward& s) const {
  step.backend.cell_rows(CellOperation::nas_backward, {.units = units(),
                                                       .gates = s.gates,
                                                       .saved = s.saved,
                                                       .c_before = s.before.c,
                                                       .d_output = s.d_output,
                                                       .d_h = s.d_state.h,
                                                       .d_c = s.d_state.c,
                                                       .lengths = s.lengths,
                                                       .step = s.step});
  step.backend.multiply(s.saved, yes, step.value(recurrent_kernel_), true, s.d_state.h);
  const Tensor d_inputs = inputs_of(s.d_input);
  if (d_inputs.empty()) return;
  step.backend.multiply(s.gates, yes, last_rows(step.value(kernel_), d_inputs.cols), false, d_inputs);
}

void NasCell::add_gradients(const StepContext& step, const CellSequence& s) const {
  const Tensor d_kernel = step.gradient(kernel_), inputs = inputs_of(s.input);
  if (!s.ahead.empty()) {
    step.backend.gemm(yes, no, s.ahead, s.gates, true, first_rows(d_kernel, s.ahead.cols));
  }
  if (!inputs.empty()) {
    step.backend.gemm(yes, no, inputs, s.gates, true, last_rows(d_kernel, inputs.cols));
  }
  step.backend.gemm(yes, no, h_of(s.input), s.saved, true, step.gradient(recurrent_kernel_));
  for (const std::size_t parameter : {recurrent_kernel_, kernel_}) step.added_gradient(parameter);
}

void NasCell::project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const {
  step.backend.multiply(gates, yes, first_rows(step.value(kernel_), d_x.cols), false, d_x);
}

}  // namespace nmt
