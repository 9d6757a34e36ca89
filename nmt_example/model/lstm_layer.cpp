#include "nmt_example/model/lstm_layer.hpp"

namespace nmt {

LstmLayer::LstmLayer(const ParameterSet& parameters, const std::string& name, bool reads_backwards,
                     double forget_bias, std::uint32_t dropout_site)
    : kernel_index_(parameters.layout().index_of(name + "/kernel")),
      bias_index_(parameters.layout().index_of(name + "/bias")),
      kernel_(parameters.value(kernel_index_)),
      bias_(parameters.value(bias_index_)),
      d_kernel_(parameters.gradient(kernel_index_)),
      d_bias_(parameters.gradient(bias_index_)),
      input_size_(kernel_.rows - kernel_.cols / 4),
      units_(kernel_.cols / 4),
      reads_backwards_(reads_backwards),
      forget_bias_(forget_bias),
      dropout_site_(dropout_site) {}

void LstmLayer::plan(Arena& arena, std::int64_t sentences, std::int64_t steps, const Tensor& output) {
  sentences_ = sentences;
  steps_ = steps;
  dropped_ = arena.take(steps * sentences, input_size_);
  gates_ = arena.take(steps * sentences, 4 * units_);
  h_ = arena.take((steps + 1) * sentences, units_);
  c_ = arena.take((steps + 1) * sentences, units_);
  tanh_c_ = arena.take(steps * sentences, units_);
  output_ = output;
}

void LstmLayer::forward(const StepContext& step, const Tensor& input, const Indices& lengths,
                        const Tensor& initial_h, const Tensor& initial_c) {
  Backend& backend = step.backend;
  step.drop(input, dropped_, dropout_site_);
  backend.gemm(Transpose::no, Transpose::no, dropped_, input_kernel(kernel_), false, gates_);
  const std::int64_t first = reads_backwards_ ? steps_ : 0;
  if (initial_h.data != nullptr) {
    backend.copy(initial_h, slot(h_, first));
    backend.copy(initial_c, slot(c_, first));
  } else {
    backend.zero(slot(h_, first));
    backend.zero(slot(c_, first));
  }
  for (std::int64_t i = 0; i < steps_; ++i) {
    const std::int64_t t = reads_backwards_ ? steps_ - 1 - i : i;
    const std::int64_t before = reads_backwards_ ? t + 1 : t;
    const std::int64_t after = reads_backwards_ ? t : t + 1;
    if (i > 0 || initial_h.data != nullptr) {
      backend.gemm(Transpose::no, Transpose::no, slot(h_, before), recurrent_kernel(kernel_), true,
                   slot(gates_, t));
    }
    backend.lstm_cell_forward({.gates = slot(gates_, t),
                               .bias = bias_,
                               .c_prev = slot(c_, before),
                               .h_prev = slot(h_, before),
                               .c = slot(c_, after),
                               .h = slot(h_, after),
                               .tanh_c = slot(tanh_c_, t),
                               .output = slot(output_, t),
                               .lengths = lengths,
                               .step = t,
                               .forget_bias = forget_bias_});
  }
}

void LstmLayer::backward(const StepContext& step, const Indices& lengths, const Tensor& d_output,
                         const Tensor& d_h, const Tensor& d_c, const Tensor& d_input) {
  Backend& backend = step.backend;
  for (std::int64_t i = steps_ - 1; i >= 0; --i) {
    const std::int64_t t = reads_backwards_ ? steps_ - 1 - i : i;
    const std::int64_t before = reads_backwards_ ? t + 1 : t;
    backend.lstm_cell_backward({.gates = slot(gates_, t),
                                .c_prev = slot(c_, before),
                                .tanh_c = slot(tanh_c_, t),
                                .d_output = slot(d_output, t),
                                .d_h = d_h,
                                .d_h_prev = d_h,
                                .d_c = d_c,
                                .lengths = lengths,
                                .step = t});
    backend.gemm(Transpose::no, Transpose::yes, slot(gates_, t), recurrent_kernel(kernel_), true, d_h);
  }
  const Tensor h_before = h_.row_range(reads_backwards_ ? sentences_ : 0, steps_ * sentences_);
  backend.gemm(Transpose::yes, Transpose::no, dropped_, gates_, true, input_kernel(d_kernel_));
  backend.gemm(Transpose::yes, Transpose::no, h_before, gates_, true, recurrent_kernel(d_kernel_));
  backend.add_column_sums(gates_, d_bias_);
  if (d_input.data != nullptr) {
    backend.gemm(Transpose::no, Transpose::yes, gates_, input_kernel(kernel_), false, d_input);
    step.drop(d_input, d_input, dropout_site_);
  }
}

}  // namespace nmt
