#include "nmt_example/model/gru_cell.hpp"

namespace nmt {

using enum Transpose;

GruCell::GruCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units)
    : Cell(units),
      gates_kernel_(layout.declare(name + "/gates/kernel", inputs + units, 2 * units)),
      gates_bias_(layout.declare(name + "/gates/bias", 1, 2 * units, 1)),
      candidate_kernel_(layout.declare(name + "/candidate/kernel", inputs + units, units)),
      candidate_bias_(layout.declare(name + "/candidate/bias", 1, units, 0)) {}

void GruCell::project(const StepContext& step, const Tensor& x, const Tensor& gates) const {
  step.backend.multiply(x, no, first_rows(step.value(gates_kernel_), x.cols), false, r_and_u(gates));
  step.backend.multiply(x, no, first_rows(step.value(candidate_kernel_), x.cols), false, candidate(gates));
}

void GruCell::forward(const StepContext& step, const CellStep& s) const {
  Backend& backend = step.backend;
  const Tensor kernel = step.value(candidate_kernel_);
  const bool ahead = s.input.cols < kernel.rows;
  CellRows rows{.units = units(),
                .gates = s.gates,
                .saved = s.saved,
                .bias = step.value(gates_bias_),
                .h_before = s.before.h,
                .h = s.after.h,
                .output = s.output,
                .lengths = s.lengths,
                .step = s.step};
  if (!s.from_zero) {
    backend.multiply(s.input, no, last_rows(step.value(gates_kernel_), s.input.cols), ahead,
                     r_and_u(s.gates));
  }
  backend.cell_rows(CellOperation::gru_reset, rows);
  if (s.input.cols > units()) {
    backend.multiply(inputs_of(s.input), no, rows_of_inputs(kernel, s.input), ahead, candidate(s.gates));
  }
  if (!s.from_zero) backend.multiply(s.saved, no, last_rows(kernel, units()), true, candidate(s.gates));
  rows.bias = step.value(candidate_bias_);
  backend.cell_rows(CellOperation::gru_output, rows);
}

void GruCell::backward(const StepContext& step, const CellStepBackward& s) const {
  Backend& backend = step.backend;
  const Tensor kernel = step.value(candidate_kernel_);
  const CellRows rows{.units = units(),
                      .gates = s.gates,
                      .scratch = s.scratch,
                      .h_before = s.before.h,
                      .d_output = s.d_output,
                      .d_h = s.d_state.h,
                      .lengths = s.lengths,
                      .step = s.step};
  backend.cell_rows(CellOperation::gru_output_backward, rows);
  backend.multiply(candidate(s.gates), yes, last_rows(kernel, units()), false, s.scratch);
  backend.cell_rows(CellOperation::gru_reset_backward, rows);
  if (s.d_input.cols > units()) {
    backend.multiply(candidate(s.gates), yes, rows_of_inputs(kernel, s.d_input), false, inputs_of(s.d_input));
  }
  backend.multiply(r_and_u(s.gates), yes, last_rows(step.value(gates_kernel_), s.d_input.cols), true,
                   s.d_input);
}

void GruCell::add_gradients(const StepContext& step, const CellSequence& s) const {
  Backend& backend = step.backend;
  const Tensor d_gates = r_and_u(s.gates), d_candidate = candidate(s.gates);
  const Tensor d_gates_kernel = step.gradient(gates_kernel_), d_kernel = step.gradient(candidate_kernel_);
  if (!s.ahead.empty()) {
    backend.gemm(yes, no, s.ahead, d_gates, true, first_rows(d_gates_kernel, s.ahead.cols));
    backend.gemm(yes, no, s.ahead, d_candidate, true, first_rows(d_kernel, s.ahead.cols));
  }
  if (s.input.cols > units()) {
    backend.gemm(yes, no, inputs_of(s.input), d_candidate, true, rows_of_inputs(d_kernel, s.input));
  }
  backend.gemm(yes, no, s.input, d_gates, true, last_rows(d_gates_kernel, s.input.cols));
  backend.gemm(yes, no, s.saved, d_candidate, true, last_rows(d_kernel, units()));
  backend.add_column_sums(d_gates, step.gradient(gates_bias_));
  backend.add_column_sums(d_candidate, step.gradient(candidate_bias_));
  for (const std::size_t parameter : {candidate_bias_, candidate_kernel_, gates_bias_, gates_kernel_}) {
    step.added_gradient(parameter);
  }
}

void GruCell::project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const {
  step.backend.multiply(r_and_u(gates), yes, first_rows(step.value(gates_kernel_), d_x.cols), false, d_x);
  step.backend.multiply(candidate(gates), yes, first_rows(step.value(candidate_kernel_), d_x.cols), true,
                        d_x);
}

}  // namespace nmt
