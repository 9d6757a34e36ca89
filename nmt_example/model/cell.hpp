#pragma once

#include <memory>
#include <string>

#include "nmt_example/model/shape.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

/// The recurrent state of a layer, each [rows, units]. `c` is empty for cells without a second state.
struct RnnState {
  Tensor h, c;
};

/// One step of a cell. The first columns of its input may be known for all steps beforehand; their products
/// are then in `gates` already. A row b with step >= lengths[b] keeps its state and has output 0; without
/// lengths (size 0) no row is masked. With `sources`, row b has row sources[b] of `input` and `before`.
struct CellStep {
  Tensor input;            ///< [rows, other inputs + units]: the step's other inputs, and `before.h`.
  bool from_zero = false;  ///< `input` is all zeros.
  Tensor gates;            ///< [rows, gate_columns()]
  Tensor products;         ///< [rows, product_columns()] of the backend's type, for the step's products.
  Tensor saved;            ///< [rows, saved_columns()], for backward.
  RnnState before, after;  ///< `before.h` is a part of `input`.
  Tensor output;           ///< [rows, units]; may be empty.
  Indices lengths, sources;
  std::int64_t step = 0;
};

/// The backward pass of the same step.
struct CellStepBackward {
  Tensor input, gates, saved;  ///< As forward left them; `gates` becomes its gradient.
  RnnState before, after;
  Tensor d_output;   ///< May be empty.
  Tensor d_input;    ///< Becomes the gradient of `input`. With lengths, `input` has no other inputs.
  RnnState d_state;  ///< After the step; becomes that before it. `d_state.h` is a part of `d_input`.
  Tensor scratch;    ///< [rows, scratch_columns()] of the backend's type
  Tensor sums;       ///< [1, sum_columns()] of the backend's type; zero before the backward pass.
  Indices lengths;
  std::int64_t step = 0;
};

/// All steps of a layer, after their backward pass.
struct CellSequence {
  Tensor ahead;  ///< [steps * rows, first inputs]
  Tensor input;  ///< [steps * rows, other inputs + units]
  Tensor gates, saved, sums;
};

/// All steps of a layer whose input is known ahead. Rows of `states` and `c` are those before and after
/// steps, of which those before the first step are set.
struct CellLayer {
  Tensor x;                ///< [steps * rows, inputs]
  Tensor states;           ///< [(steps + 1) * rows, units]: h
  Tensor c;                ///< [(steps + 1) * rows, units], or empty
  Tensor gates;            ///< [steps * rows, gate_columns()]
  Tensor saved;            ///< [steps * rows, saved_columns()]
  Tensor output;           ///< [steps * rows, units]; may be empty.
  Indices lengths;         ///< As in `CellStep`.
  bool from_zero = false;  ///< h before the first step is zero.
  bool reads_backwards = false;
};

/// The backward pass of the same layer.
struct CellLayerBackward {
  Tensor d_output;   ///< [steps * rows, units]
  RnnState d_state;  ///< [rows, units]: after the last step; becomes that before the first.
  Tensor d_x;        ///< To be set; may be empty, and the tensor of `d_output`.
};

/// A recurrent unit: its parameters and one step, forward and backward. A layer (`RnnLayer`) has the tensors
/// and goes through the steps.
class Cell {
 public:
  explicit Cell(std::int64_t units) : units_(units) {}
  virtual ~Cell() = default;

  [[nodiscard]] std::int64_t units() const noexcept { return units_; }
  [[nodiscard]] virtual bool has_c() const { return true; }
  [[nodiscard]] virtual std::int64_t gate_columns() const = 0;
  [[nodiscard]] virtual std::int64_t saved_columns() const = 0;
  [[nodiscard]] virtual std::int64_t scratch_columns() const { return 0; }
  [[nodiscard]] virtual std::int64_t product_columns() const { return 0; }
  [[nodiscard]] virtual std::int64_t sum_columns() const { return 0; }
  /// Whether steps may have `sources`, if their first inputs are known beforehand.
  [[nodiscard]] virtual bool takes_sources() const { return false; }

  /// Computes the whole layer, if the backend has a faster way than step by step; otherwise returns false,
  /// having done nothing.
  virtual bool forward_layer(const StepContext&, const CellLayer&) const { return false; }
  /// The backward pass of a layer whose `forward_layer` returned true: adds to the parameters' gradients.
  virtual void backward_layer(const StepContext&, const CellLayer&, const CellLayerBackward&) const {}

  /// gates = products with the first inputs `x` of all steps.
  virtual void project(const StepContext& step, const Tensor& x, const Tensor& gates) const = 0;
  virtual void forward(const StepContext& step, const CellStep& s) const = 0;
  virtual void backward(const StepContext& step, const CellStepBackward& s) const = 0;
  /// The rest of the backward pass, for all steps at once: adds to the parameters' gradients.
  virtual void add_gradients(const StepContext& step, const CellSequence& s) const = 0;
  /// d_x = gradient of the first inputs of all steps.
  virtual void project_back(const StepContext& step, const Tensor& gates, const Tensor& d_x) const = 0;

 protected:
  static Tensor first_rows(const Tensor& kernel, std::int64_t count) { return kernel.row_range(0, count); }
  static Tensor last_rows(const Tensor& kernel, std::int64_t count) {
    return kernel.row_range(kernel.rows - count, count);
  }

 private:
  std::int64_t units_;
};

/// The cell of the model's unit type, with parameters named `name`/...; `inputs`: columns of its input.
std::unique_ptr<Cell> make_cell(ParameterLayout& layout, const std::string& name, std::int64_t inputs,
                                const ModelShape& shape);

}  // namespace nmt
