#pragma once

#include "nmt_example/model/cell.hpp"

namespace nmt {

/// tf.contrib's LayerNormBasicLSTMCell: the gates and the new cell state are normalised, each with a gain and
/// a shift; there is no bias.
class LayerNormLstmCell final : public Cell {
 public:
  LayerNormLstmCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units,
                    double forget_bias);

  [[nodiscard]] std::int64_t gate_columns() const override { return 4 * units(); }
  [[nodiscard]] std::int64_t saved_columns() const override { return 5 * units() + 5; }
  [[nodiscard]] std::int64_t scratch_columns() const override { return 5 * units(); }
  [[nodiscard]] std::int64_t sum_columns() const override { return 5 * units(); }
  void project(const StepContext& step, const Tensor& x, const Tensor& gates) const override;
  void forward(const StepContext& step, const CellStep& s) const override;
  void backward(const StepContext& step, const CellStepBackward& s) const override;
  void add_gradients(const StepContext& step, const CellSequence& s) const override;
  void project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const override;

 private:
  std::size_t kernel_, gain_, shift_;
  double forget_bias_;
};

}  // namespace nmt
