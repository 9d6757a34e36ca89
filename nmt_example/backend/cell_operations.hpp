#pragma once

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

/// Row r of a step.
template <typename Real>
NMT_HOST_DEVICE CellRow<Real> row_of(const CellRows& s, std::int64_t r) {
  const auto at = [r](const Tensor& x) {
    return x.data == nullptr ? nullptr : static_cast<Real*>(x.data) + r * x.stride;
  };
  return {at(s.gates),
          at(s.saved),
          at(s.scratch),
          static_cast<const Real*>(s.bias.data),
          static_cast<const Real*>(s.gain.data),
          at(s.h_before),
          at(s.c_before),
          at(s.h),
          at(s.c),
          at(s.output),
          at(s.d_output),
          at(s.d_h),
          at(s.d_c),
          s.units,
          static_cast<Real>(s.forget_bias)};
}

template <typename Real, typename Team>
NMT_HOST_DEVICE void fill_row(Real* x, std::int64_t columns, const Team& team) {
  for (std::int64_t k = team.first(); k < columns; k += team.step()) x[k] = 0;
}

/// Computes row r of a step, or does what a masked row needs.
template <typename Operation, typename Math, typename Real, typename Team>
NMT_HOST_DEVICE void compute_cell_row(const CellRows& s, std::int64_t r, const Team& team) {
  const CellRow<Real> row = row_of<Real>(s, r);
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
