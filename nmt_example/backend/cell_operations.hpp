#pragma once

#include <memory>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/gru_rows.hpp"
#include "nmt_example/backend/layer_norm_lstm_rows.hpp"
#include "nmt_example/backend/nas_rows.hpp"

namespace nmt {

/// Calls f with an object of the type that computes the operation's rows.
template <typename F>
NMT_ALWAYS_INLINE void with_rows_of(CellOperation operation, const F& f) {
  switch (operation) {
    case CellOperation::gru_reset:
      return f(GruReset());
    case CellOperation::gru_output:
      return f(GruOutput());
    case CellOperation::gru_output_backward:
      return f(GruOutputBackward());
    case CellOperation::gru_reset_backward:
      return f(GruResetBackward());
    case CellOperation::layer_norm_lstm:
      return f(LayerNormLstm());
    case CellOperation::layer_norm_lstm_backward:
      return f(LayerNormLstmBackward());
    case CellOperation::nas:
      return f(Nas());
    case CellOperation::nas_backward:
      return f(NasBackward());
  }
}

/// A pointer to row r; null without memory.
template <typename Pointer>
NMT_HOST_DEVICE Pointer row_at(const Tensor& x, std::int64_t r) {
  using Element = typename std::pointer_traits<Pointer>::element_type;
  return x.data == nullptr ? Pointer() : Pointer(static_cast<Element*>(x.data) + r * x.stride);
}

/// Row r of a step.
template <typename Row>
NMT_HOST_DEVICE Row row_of(const CellRows& s, std::int64_t r) {
  using Real = typename Row::Real;
  using Values = typename Row::Values;
  return {row_at<Values>(s.gates, r),
          row_at<Values>(s.saved, r),
          row_at<Real*>(s.scratch, r),
          static_cast<const Real*>(s.bias.data),
          static_cast<const Real*>(s.gain.data),
          row_at<Values>(s.h_before, r),
          row_at<Values>(s.h, r),
          row_at<Values>(s.output, r),
          row_at<Values>(s.d_output, r),
          row_at<Values>(s.d_h, r),
          row_at<Real*>(s.c_before, r),
          row_at<Real*>(s.c, r),
          row_at<Real*>(s.d_c, r),
          s.units,
          static_cast<Real>(s.forget_bias)};
}

template <typename Values, typename Team>
NMT_HOST_DEVICE void fill_row(Values x, std::int64_t columns, const Team& team) {
  for (std::int64_t k = team.first(); k < columns; k += team.step()) x[k] = 0;
}

/// Computes row r of a step, or does what a masked row needs.
template <typename Operation, typename Math, typename Row, typename Team>
NMT_HOST_DEVICE void compute_cell_row(const CellRows& s, std::int64_t r, const Team& team) {
  const Row row = row_of<Row>(s, r);
  const bool masked = s.lengths.size != 0 && s.step >= s.lengths.data[r];
  if (!masked || Operation::masked == MaskedRow::computed) {
    Operation::template row<Math>(row, team);
    return;
  }
  if constexpr (Operation::masked == MaskedRow::cut_off) {
    fill_row(row.gates, s.gates.cols, team);
    if (row.saved != nullptr) fill_row(row.saved, s.saved.cols, team);
    if (row.scratch != nullptr) fill_row(row.scratch, s.scratch.cols, team);
  } else {
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      row.h[k] = row.h_before[k];
      if (row.c != nullptr) row.c[k] = row.c_before[k];
      if (row.output != nullptr) row.output[k] = 0;
    }
  }
}

}  // namespace nmt
