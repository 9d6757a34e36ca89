#pragma once

#include "nmt_example/model/cell.hpp"

namespace nmt {

/// tf.contrib's NASCell, without projection and bias. One of its products multiplies that of the input with
/// that of h, so the two have kernels of their own.
class NasCell final : public Cell {
 public:
  NasCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units);

  [[nodiscard]] std::int64_t gate_columns() const override { return 8 * units(); }
  [[nodiscard]] std::int64_t saved_columns() const override { return 8 * units(); }
  void project(const StepContext& step, const Tensor& x, const Tensor& gates) const override;
  void forward(const StepContext& step, const CellStep& s) const override;
  void backward(const StepContext& step, const CellStepBackward& s) const override;
  void add_gradients(const StepContext& step, const CellSequence& s) const override;
  void project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const override;

 private:
  [[nodiscard]] Tensor inputs_of(const Tensor& input) const {
    return input.col_range(0, input.cols - units());
  }
  [[nodiscard]] Tensor h_of(const Tensor& input) const {
    return input.col_range(input.cols - units(), units());
  }

  std::size_t kernel_, recurrent_kernel_;
};

}  // namespace nmt
