#pragma once

#include "nmt_example/backend/cell_row.hpp"

namespace nmt {

// A step of tf.contrib's LayerNormBasicLSTMCell: as an LSTM's, with the four gates and the new cell state
// normalised over the units, each with a gain and a shift, and without a bias. `gates` [4 units]: i, j, f, o,
// which become their normalised values. `saved` [5 units + 5]: the normalised cell state is its fifth part,
// the last columns are 1 / standard deviation. gain and bias (the shift) [5 units].
constexpr double layer_norm_epsilon = 1e-12;

/// The gates after gain and shift, and what they do to the cell state.
template <typename Math, typename Real>
struct LayerNormGates {
  Real i, j, f, o;

  NMT_HOST_DEVICE LayerNormGates(const CellRow<Real>& s, std::int64_t k) {
    const auto scaled = [&](int gate) {
      const std::int64_t at = gate * s.units + k;
      return s.gates[at] * s.gain[at] + s.bias[at];
    };
    i = Math::sigmoid(scaled(0));
    j = Math::tanh(scaled(1));
    f = Math::sigmoid(scaled(2) + s.forget_bias);
    o = Math::sigmoid(scaled(3));
  }
};

struct LayerNormLstm {
  static constexpr MaskedRow masked = MaskedRow::kept;

  /// Normalises x; returns 1 / standard deviation.
  template <typename Math, typename Real, typename Team>
  NMT_HOST_DEVICE static Real normalise(Real* x, std::int64_t units, const Team& team) {
    Real sum = 0;
    for (std::int64_t k = team.first(); k < units; k += team.step()) sum += x[k];
    const Real mean = team.sum(sum) / static_cast<Real>(units);
    sum = 0;
    for (std::int64_t k = team.first(); k < units; k += team.step()) sum += (x[k] - mean) * (x[k] - mean);
    const Real scale =
        1 / Math::sqrt(team.sum(sum) / static_cast<Real>(units) + static_cast<Real>(layer_norm_epsilon));
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < units; k += team.step()) x[k] = (x[k] - mean) * scale;
    return scale;
  }

  template <typename Math, typename Real, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real>& s, const Team& team) {
    Real* const scales = s.saved + 5 * s.units;
    Real* const cell = s.saved + 4 * s.units;
    for (int gate = 0; gate < 4; ++gate) {
      const Real scale = normalise<Math>(s.gates + gate * s.units, s.units, team);
      if (team.first() == 0) scales[gate] = scale;
    }
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const LayerNormGates<Math, Real> g(s, k);
      cell[k] = s.c_before[k] * g.f + g.i * g.j;
    }
    const Real scale = normalise<Math>(cell, s.units, team);
    if (team.first() == 0) scales[4] = scale;
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const LayerNormGates<Math, Real> g(s, k);
      s.c[k] = cell[k] * s.gain[4 * s.units + k] + s.bias[4 * s.units + k];
      s.set_h(k, Math::tanh(s.c[k]) * g.o);
    }
  }
};

/// `gates` become their gradients before normalisation, `scratch` [5 units] the gradients of the shifts,
/// `saved` [first 5 units] those of the gains.
struct LayerNormLstmBackward {
  static constexpr MaskedRow masked = MaskedRow::cut_off;

  /// From x = normalised values and d = gradients after the gain: x becomes the gradients before
  /// normalisation, d those of the shift, `d_gain` those of the gain, which may be x.
  template <typename Real, typename Team>
  NMT_HOST_DEVICE static void normalise_backward(Real* x, const Real* d, const Real* gain, Real scale,
                                                 Real* d_gain, std::int64_t units, const Team& team) {
    Real sum = 0, product = 0;
    for (std::int64_t k = team.first(); k < units; k += team.step()) {
      sum += d[k] * gain[k];
      product += d[k] * gain[k] * x[k];
    }
    const Real mean = team.sum(sum) / static_cast<Real>(units);
    const Real slope = team.sum(product) / static_cast<Real>(units);
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < units; k += team.step()) {
      const Real normalised = x[k];
      x[k] = scale * (d[k] * gain[k] - mean - normalised * slope);
      d_gain[k] = d[k] * normalised;
    }
  }

  template <typename Math, typename Real, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real>& s, const Team& team) {
    const std::int64_t n = s.units;
    const Real* const scales = s.saved + 5 * n;
    Real* const cell = s.saved + 4 * n;
    Real* const d_cell = s.saved;  // the gradient of the cell state before normalisation
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < n; k += team.step()) {
      const LayerNormGates<Math, Real> g(s, k);
      const Real t = Math::tanh(s.c[k]), d = s.d_after(k);
      s.scratch[3 * n + k] = d * t * g.o * (1 - g.o);
      s.scratch[4 * n + k] = s.d_c[k] + d * g.o * (1 - t * t);
      d_cell[k] = cell[k];
      s.d_h[k] = 0;
    }
    normalise_backward(d_cell, s.scratch + 4 * n, s.gain + 4 * n, scales[4], cell, n, team);
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < n; k += team.step()) {
      const LayerNormGates<Math, Real> g(s, k);
      const Real d = d_cell[k];
      s.scratch[k] = d * g.j * g.i * (1 - g.i);
      s.scratch[n + k] = d * g.i * (1 - g.j * g.j);
      s.scratch[2 * n + k] = d * s.c_before[k] * g.f * (1 - g.f);
      s.d_c[k] = d * g.f;
    }
    for (int gate = 0; gate < 4; ++gate) {
      normalise_backward(s.gates + gate * n, s.scratch + gate * n, s.gain + gate * n, scales[gate],
                         s.saved + gate * n, n, team);
    }
  }
};

}  // namespace nmt
