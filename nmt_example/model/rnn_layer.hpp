#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "nmt_example/model/arena.hpp"
#include "nmt_example/model/cell.hpp"

namespace nmt {

/// What a layer does around its cell.
struct RnnLayerSettings {
  /// Columns of each part of the input, e.g. an embedded word and a context.
  std::vector<std::int64_t> inputs;
  bool reads_backwards = false;
  bool residual = false;    ///< The output is the cell's plus the first part of the input (before dropout).
  std::size_t dropout = 0;  ///< Of the layout.
  std::size_t number = 0;   ///< Of the layout.
};

/// What a layer reads that goes over a whole sequence.
struct RnnInput {
  std::array<Tensor, 2> parts;  ///< [steps * sentences, ...]: as many as the layer has.
  Indices lengths = {};         ///< As in `CellStep`.
  RnnState initial = {};        ///< Empty: zero.
};

/// The gradients of what such a layer gives and reads.
struct RnnGradients {
  Tensor d_output;
  RnnState d_final;  ///< Empty: zero.
  Tensor d_inputs;   ///< [steps * sentences, all parts]: to be set; may be empty, and the tensor of
                     ///< `d_output`, unless the layer is residual.
};

/// Some of a sequence's steps, in the order in which a layer reads them.
struct Chunk {
  std::int64_t begin, end;
};

/// A recurrent layer with dropout on its input, for encoder, decoder and search. It runs over a whole
/// sequence (`forward`, `backward`), or step by step for callers that make a step's input from the steps
/// before (`start`, `put`, `advance`; `start_backward`, `retreat`, `finish_backward`). Products with the
/// parts of the input that are known ahead are one GEMM over all steps. A layer that reads backwards goes
/// from the last step to the first; sentences that have not begun yet keep a zero state, which equals
/// reversing each sentence within its length.
class RnnLayer {
 public:
  RnnLayer(std::unique_ptr<Cell> cell, RnnLayerSettings settings);

  /// Takes the working memory. The first `ahead` parts of the input are known ahead. `output` [steps *
  /// sentences, units] may be a part of a wider tensor; without one, the layer's own memory holds the output,
  /// which no sentence's length may mask then.
  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, std::size_t ahead, bool training,
            const Tensor& output = {});

  /// All steps, with all parts of the input known ahead.
  void forward(const StepContext& step, const RnnInput& from);
  /// Also adds to the parameters' gradients.
  void backward(const StepContext& step, const RnnGradients& gradients);
  /// The same for one chunk after the other: forward from the first, backward from the last. A chunk reads
  /// the input of its own steps alone, and sets the gradient of that; in the end, `add_gradients` adds to the
  /// parameters'.
  void forward(const StepContext& step, const RnnInput& from, const Chunk& chunk);
  void backward(const StepContext& step, const RnnGradients& gradients, const Chunk& chunk);
  void add_gradients(const StepContext& step) const;

  /// Reads the parts that are known ahead, for all steps.
  void read_ahead(const StepContext& step, std::span<const Tensor> inputs);
  void start(const StepContext& step, const RnnState& initial);
  /// Sets a part of the input of step t.
  void put(const StepContext& step, std::size_t part, std::int64_t t, const Tensor& x);
  /// Step t. A residual layer adds the first part of its input, `below`.
  void advance(const StepContext& step, std::int64_t t, const Tensor& below = {});

  void start_backward(const StepContext& step, const RnnState& d_final);
  void retreat(const StepContext& step, std::int64_t t, const Tensor& d_output);
  /// The gradient of a part of step t's input, valid until `retreat` of another step. Call it once.
  Tensor d_input(const StepContext& step, std::size_t part, std::int64_t t);
  void finish_backward(const StepContext& step, const Tensor& d_ahead);

  /// Of all steps, [steps * sentences, units].
  [[nodiscard]] Tensor output() const;
  [[nodiscard]] Tensor output(std::int64_t t) const { return slot(output(), t); }
  [[nodiscard]] RnnState final_state() const { return state(reads_backwards_ ? 0 : steps_); }
  [[nodiscard]] RnnState d_initial_state() const { return {d_h(), d_c_}; }
  [[nodiscard]] std::size_t parts() const noexcept { return parts_.size(); }
  /// Columns of a part of the input.
  [[nodiscard]] std::int64_t inputs(std::size_t part) const { return parts_.at(part).columns; }
  [[nodiscard]] bool residual() const noexcept { return residual_; }
  [[nodiscard]] std::int64_t units() const noexcept { return cell_->units(); }
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

  /// For a search, in which rows continue each other's steps: from now on there are as many rows as
  /// `sources`, at most those that `plan` has room for; the state of row r before step 0 is row sources[r] of
  /// those that `select` takes. Without `sources` (size 0), there are `parents` rows; a cell may need this.
  /// Parts of the input that are not known ahead have a row for each of the `parents`.
  void set_rows(std::int64_t parents, const Indices& sources);
  /// Takes the states of rows `parents` after step 0, as many as `set_rows` was told.
  void select(const StepContext& step, const Indices& parents) const;
  /// A part of the input of a search's step.
  [[nodiscard]] Tensor input(std::size_t part) const {
    return slot(input_, 0, rows_before_).col_range(parts_[part].first - ahead_columns_, parts_[part].columns);
  }
  [[nodiscard]] bool takes_sources() const { return cell_->takes_sources(); }
  /// The products with the first part of the input: out [x.rows, gate_columns()].
  void project(const StepContext& step, const Tensor& x, const Tensor& out) const {
    cell_->project(step, x, out);
  }
  [[nodiscard]] std::int64_t gate_columns() const { return cell_->gate_columns(); }
  /// Instead of `read_ahead`: the products are rows `rows` of `products`.
  void read_products(const StepContext& step, const Tensor& products, const Indices& rows) {
    step.backend.gather_rows(products, rows, gates_.row_range(0, rows_));
  }
  /// Makes `initial` (or zeros) of so many rows the state that the first `select` takes.
  void start_search(const StepContext& step, const RnnState& initial, std::int64_t rows);

 private:
  struct Part {
    std::int64_t first, columns, dropout_column;
  };

  void drop_ahead(const StepContext& step, std::span<const Tensor> inputs, const Chunk& chunk);
  void drop_back(const StepContext& step, const Tensor& d_ahead, const Chunk& chunk) const;
  void project_back(const StepContext& step, const Tensor& d_ahead, const Chunk& chunk) const;
  [[nodiscard]] CellLayer whole() const;
  [[nodiscard]] Chunk all() const { return {0, steps_}; }
  [[nodiscard]] std::int64_t first_step(const Chunk& chunk) const {
    return reads_backwards_ ? steps_ - chunk.end : chunk.begin;
  }
  [[nodiscard]] Tensor rows_of(const Tensor& x, const Chunk& chunk) const {
    return x.row_range(first_step(chunk) * sentences_, (chunk.end - chunk.begin) * rows_);
  }
  [[nodiscard]] Tensor slot(const Tensor& x, std::int64_t t) const { return slot(x, t, rows_); }
  [[nodiscard]] Tensor slot(const Tensor& x, std::int64_t t, std::int64_t rows) const {
    return x.empty() ? Tensor() : x.row_range(t * sentences_, rows);
  }
  [[nodiscard]] Tensor h() const { return input_.col_range(input_.cols - units(), units()); }
  [[nodiscard]] Tensor d_h() const { return d_input_.col_range(d_input_.cols - units(), units()); }
  /// Before step t; after the step that reads before it.
  [[nodiscard]] RnnState state(std::int64_t t) const { return state(t, rows_); }
  [[nodiscard]] RnnState state(std::int64_t t, std::int64_t rows) const {
    return {slot(h(), t, rows), slot(c_, t, rows)};
  }
  [[nodiscard]] std::int64_t before(std::int64_t t) const { return reads_backwards_ ? t + 1 : t; }
  [[nodiscard]] std::int64_t after(std::int64_t t) const { return reads_backwards_ ? t : t + 1; }
  [[nodiscard]] std::int64_t nth_step(std::int64_t i) const { return reads_backwards_ ? steps_ - 1 - i : i; }

  std::unique_ptr<Cell> cell_;
  std::vector<Part> parts_;
  bool reads_backwards_, residual_;
  std::size_t dropout_, number_;

  std::int64_t sentences_ = 0, steps_ = 0;
  std::int64_t rows_ = 0;         // of a step: the sentences, or those that a search has now
  std::int64_t rows_before_ = 0;  // of states before a step
  Indices sources_;
  std::size_t ahead_parts_ = 0;
  std::int64_t ahead_columns_ = 0;
  Tensor dropped_;  // [steps * sentences, inputs known ahead]
  Tensor ahead_;    // that, or without dropout the caller's tensor
  Tensor
      input_;  // [(steps + 1) * sentences, other inputs + units]: these inputs, and h before and after steps
  Tensor gates_, saved_, products_;
  Tensor c_;  // [(steps + 1) * sentences, units], or empty
  Tensor output_;
  Tensor d_input_, d_c_, scratch_, sums_;
  Indices lengths_;
  bool from_zero_ = false;
  bool at_once_ = false;  // the cell computed the whole layer
};

}  // namespace nmt
