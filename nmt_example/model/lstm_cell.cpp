#include "nmt_example/model/lstm_cell.hpp"

namespace nmt {

LstmCell::LstmCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units,
                   double forget_bias)
    : Cell(units),
      kernel_(layout.declare(name + "/kernel", inputs + units, 4 * units)),
      bias_(layout.declare(name + "/bias", 1, 4 * units, 0)),
      forget_bias_(forget_bias) {}

Backend::LstmLayer LstmCell::layer_of(const StepContext& step, const CellLayer& layer) const {
  return {.x = layer.x,
          .kernel = step.value(kernel_),
          .bias = step.value(bias_),
          .gates = layer.gates,
          .h = layer.states,
          .c = layer.c,
          .tanh_c = layer.saved,
          .output = layer.output,
          .lengths = layer.lengths,
          .from_zero = layer.from_zero,
          .reads_backwards = layer.reads_backwards,
          .backward_follows = step.backward != nullptr,
          .forget_bias = forget_bias_};
}

bool LstmCell::forward_layer(const StepContext& step, const CellLayer& layer) const {
  return step.backend.lstm_layer_forward(layer_of(step, layer));
}

void LstmCell::backward_layer(const StepContext& step, const CellLayer& layer,
                              const CellLayerBackward& gradients) const {
  step.backend.lstm_layer_backward(layer_of(step, layer), {.d_output = gradients.d_output,
                                                           .d_h = gradients.d_state.h,
                                                           .d_c = gradients.d_state.c,
                                                           .d_kernel = step.gradient(kernel_),
                                                           .d_bias = step.gradient(bias_),
                                                           .d_x = gradients.d_x});
  step.added_gradient(bias_);
  step.added_gradient(kernel_);
}

void LstmCell::project(const StepContext& step, const Tensor& x, const Tensor& gates) const {
  step.backend.multiply(x, Transpose::no, first_rows(step.value(kernel_), x.cols), false, gates);
}

void LstmCell::forward(const StepContext& step, const CellStep& s) const {
  const Tensor kernel = step.value(kernel_);
  // Gates that hold products already are out of the caches, so the cell adds these; a product that does so
  // waits for them.
  const bool adds = s.input.cols < kernel.rows;
  const Tensor products = adds ? s.products : s.gates;
  if (!s.from_zero) {
    step.backend.multiply(s.input, Transpose::no, last_rows(kernel, s.input.cols), false, products);
  }
  step.backend.lstm_cell_forward({.gates = s.gates,
                                  .bias = step.value(bias_),
                                  .c_prev = s.before.c,
                                  .h_prev = s.before.h,
                                  .c = s.after.c,
                                  .h = s.after.h,
                                  .tanh_c = s.saved,
                                  .output = s.output,
                                  .products = adds && !s.from_zero ? s.products : Tensor(),
                                  .lengths = s.lengths,
                                  .sources = s.sources,
                                  .step = s.step,
                                  .forget_bias = forget_bias_});
}

void LstmCell::backward(const StepContext& step, const CellStepBackward& s) const {
  const bool masked = s.lengths.size != 0;
  step.backend.lstm_cell_backward({.gates = s.gates,
                                   .c_prev = s.before.c,
                                   .tanh_c = s.saved,
                                   .d_output = s.d_output,
                                   .d_h = s.d_state.h,
                                   .d_h_prev = masked ? s.d_state.h : Tensor(),
                                   .d_c = s.d_state.c,
                                   .lengths = s.lengths,
                                   .step = s.step});
  step.backend.multiply(s.gates, Transpose::yes, last_rows(step.value(kernel_), s.d_input.cols), masked,
                        s.d_input);
}

void LstmCell::add_gradients(const StepContext& step, const CellSequence& s) const {
  Backend& backend = step.backend;
  const Tensor d_kernel = step.gradient(kernel_);
  if (!s.ahead.empty()) {
    backend.gemm(Transpose::yes, Transpose::no, s.ahead, s.gates, true, first_rows(d_kernel, s.ahead.cols));
  }
  backend.gemm(Transpose::yes, Transpose::no, s.input, s.gates, true, last_rows(d_kernel, s.input.cols));
  backend.add_column_sums(s.gates, step.gradient(bias_));
  step.added_gradient(bias_);
  step.added_gradient(kernel_);
}

void LstmCell::project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const {
  step.backend.multiply(gates, Transpose::yes, first_rows(step.value(kernel_), d_x.cols), false, d_x);
}

}  // namespace nmt
