#pragma once

#include "nmt_example/model/cell.hpp"

namespace nmt {

/// TensorFlow's GRUCell: the candidate sees the reset state, r h; the gates' biases start at 1.
class GruCell final : public Cell {
 public:
  GruCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units);

  [[nodiscard]] bool has_c() const override { return false; }
  [[nodiscard]] std::int64_t gate_columns() const override { return 3 * units(); }
  [[nodiscard]] std::int64_t saved_columns() const override { return units(); }
  [[nodiscard]] std::int64_t scratch_columns() const override { return units(); }
  void project(const StepContext& step, const Tensor& x, const Tensor& gates) const override;
  void forward(const StepContext& step, const CellStep& s) const override;
  void backward(const StepContext& step, const CellStepBackward& s) const override;
  void add_gradients(const StepContext& step, const CellSequence& s) const override;
  void project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const override;

 private:
  [[nodiscard]] Tensor r_and_u(const Tensor& gates) const { return gates.col_range(0, 2 * units()); }
  [[nodiscard]] Tensor candidate(const Tensor& gates) const { return gates.col_range(2 * units(), units()); }
  /// The step's inputs without h, and the rows of the candidate's kernel that multiply them.
  [[nodiscard]] Tensor inputs_of(const Tensor& input) const {
    return input.col_range(0, input.cols - units());
  }
  [[nodiscard]] Tensor rows_of_inputs(const Tensor& kernel, const Tensor& input) const {
    return kernel.row_range(kernel.rows - input.cols, input.cols - units());
  }

  std::size_t gates_kernel_, gates_bias_, candidate_kernel_, candidate_bias_;
};

}  // namespace nmt
