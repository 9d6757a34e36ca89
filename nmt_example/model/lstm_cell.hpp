#pragma once

#include "nmt_example/model/cell.hpp"

namespace nmt {

/// TensorFlow's LSTMCell; see `Backend::LstmStep`.
class LstmCell final : public Cell {
 public:
  LstmCell(ParameterLayout& layout, const std::string& name, std::int64_t inputs, std::int64_t units,
           double forget_bias);

  [[nodiscard]] std::int64_t product_columns() const override { return 4 * units(); }
  [[nodiscard]] std::int64_t gate_columns() const override { return 4 * units(); }
  [[nodiscard]] std::int64_t saved_columns() const override { return units(); }
  [[nodiscard]] bool takes_sources() const override { return true; }
  bool forward_layer(const StepContext& step, const CellLayer& layer) const override;
  void backward_layer(const StepContext& step, const CellLayer& layer,
                      const CellLayerBackward& gradients) const override;
  void project(const StepContext& step, const Tensor& x, const Tensor& gates) const override;
  void forward(const StepContext& step, const CellStep& s) const override;
  void backward(const StepContext& step, const CellStepBackward& s) const override;
  void add_gradients(const StepContext& step, const CellSequence& s) const override;
  void project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const override;

 private:
  [[nodiscard]] Backend::LstmLayer layer_of(const StepContext& step, const CellLayer& layer) const;

  std::size_t kernel_, bias_;
  double forget_bias_;
};

}  // namespace nmt
