#pragma once

#include "nmt_example/backend/cell_row.hpp"

namespace nmt {

// A step of TensorFlow's GRUCell. Gates are r, u and the candidate: `gates` [3 units].
//   r, u = sigmoid(gates + bias);  candidate = tanh(x W + (r h) V + bias);  h' = u h + (1 - u) candidate

/// r and u; saved = r h.
struct GruReset {
  static constexpr MaskedRow masked = MaskedRow::computed;
  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const Real r = Math::sigmoid(s.gates[k] + s.bias[k]);
      s.gates[k] = r;
      s.gates[s.units + k] = Math::sigmoid(s.gates[s.units + k] + s.bias[s.units + k]);
      s.saved[k] = r * s.h_before[k];
    }
  }
};

struct GruOutput {
  static constexpr MaskedRow masked = MaskedRow::kept;
  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const Real u = s.gates[s.units + k];
      const Real candidate = Math::tanh(s.gates[2 * s.units + k] + s.bias[k]);
      s.gates[2 * s.units + k] = candidate;
      s.set_h(k, u * s.h_before[k] + (1 - u) * candidate);
    }
  }
};

/// Gradients of u and of the candidate's pre-activations; d_h becomes the part of h's gradient through u.
struct GruOutputBackward {
  static constexpr MaskedRow masked = MaskedRow::cut_off;
  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const Real u = s.gates[s.units + k], candidate = s.gates[2 * s.units + k];
      const Real d = s.d_after(k);
      s.gates[s.units + k] = d * (s.h_before[k] - candidate) * u * (1 - u);
      s.gates[2 * s.units + k] = d * (1 - u) * (1 - candidate * candidate);
      s.d_h[k] = d * u;
    }
  }
};

/// From scratch, the gradient of r h.
struct GruResetBackward {
  static constexpr MaskedRow masked = MaskedRow::computed;
  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const Real r = s.gates[k], d = s.scratch[k];
      s.gates[k] = d * s.h_before[k] * r * (1 - r);
      s.d_h[k] += d * r;
    }
  }
};

}  // namespace nmt
