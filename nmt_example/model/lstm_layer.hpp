#pragma once

#include "nmt_example/model/arena.hpp"
#include "nmt_example/model/parameters.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

/// One LSTM layer over a whole sequence, with dropout on its input. The input projections of all steps are
/// one GEMM. A backward-reading layer runs from the last step to the first; sentences that have not begun yet
/// keep a zero state, which equals reversing each sentence within its length. Cost of forward, per step and
/// sentence: 2 (input + units) * 4 units operations; backward costs twice that.
class LstmLayer {
 public:
  LstmLayer(const ParameterSet& parameters, const std::string& name, bool reads_backwards, double forget_bias,
            std::uint32_t dropout_site);

  /// Takes the working memory of a step. The layer's output goes to `output` [steps * sentences, units],
  /// which may be a part of a wider tensor.
  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, const Tensor& output);
  /// Without `initial_h` the layer starts from zeros. If `lengths` is empty, no sentence is masked.
  void forward(const StepContext& step, const Tensor& input, const Indices& lengths,
               const Tensor& initial_h = {}, const Tensor& initial_c = {});
  /// Adds to the parameters' gradients. `d_h` and `d_c` [sentences, units] hold the gradient of the final
  /// state, and are replaced by that of the initial state. `d_input` (may be empty) is set.
  void backward(const StepContext& step, const Indices& lengths, const Tensor& d_output, const Tensor& d_h,
                const Tensor& d_c, const Tensor& d_input);

  [[nodiscard]] Tensor final_h() const { return slot(h_, reads_backwards_ ? 0 : steps_); }
  [[nodiscard]] Tensor final_c() const { return slot(c_, reads_backwards_ ? 0 : steps_); }
  [[nodiscard]] const Tensor& output() const noexcept { return output_; }
  [[nodiscard]] std::int64_t units() const noexcept { return units_; }
  [[nodiscard]] std::size_t kernel_index() const noexcept { return kernel_index_; }
  [[nodiscard]] std::size_t bias_index() const noexcept { return bias_index_; }

 private:
  [[nodiscard]] Tensor slot(const Tensor& x, std::int64_t t) const {
    return x.row_range(t * sentences_, sentences_);
  }
  [[nodiscard]] Tensor input_kernel(const Tensor& kernel) const { return kernel.row_range(0, input_size_); }
  [[nodiscard]] Tensor recurrent_kernel(const Tensor& kernel) const {
    return kernel.row_range(input_size_, units_);
  }

  std::size_t kernel_index_, bias_index_;
  Tensor kernel_, bias_, d_kernel_, d_bias_;
  std::int64_t input_size_, units_;
  bool reads_backwards_;
  double forget_bias_;
  std::uint32_t dropout_site_;

  std::int64_t sentences_ = 0, steps_ = 0;
  Tensor dropped_;  // [steps * sentences, input]
  Tensor gates_;    // [steps * sentences, 4 units]
  Tensor h_, c_;    // [(steps + 1) * sentences, units]: state before and after each step
  Tensor tanh_c_;   // [steps * sentences, units]
  Tensor output_;
};

}  // namespace nmt
