#pragma once

#include "nmt_example/backend/cell_row.hpp"

namespace nmt {

// A step of tf.contrib's LayerNormBasicLSTMCell: as an LSTM's, with the four gates and the new cell state
// normalised over the units, each with a gain and a shift, and without a bias. `gates` [4 units]: i, j, f, o,
// which become their normalised values. `saved` [5 units + 5]: the normalised cell state is its fifth part,
// the last columns are 1 / standard deviation. gain and bias (the shift) [5 units].
constexpr double layer_norm_epsilon = 1e-12;

/// A gate's value after gain and shift.
template <typename Real, typename Values>
NMT_HOST_DEVICE Real scaled_gate(const CellRow<Real, Values>& s, int gate, std::int64_t k, Real normalised) {
  const std::int64_t at = gate * s.units + k;
  return normalised * s.gain[at] + s.bias[at];
}

struct LayerNormLstm {
  static constexpr MaskedRow masked = MaskedRow::kept;

  /// What normalises values.
  template <typename Math, typename Real>
  struct Normaliser {
    Real mean, scale;

    template <typename Values, typename Team>
    NMT_HOST_DEVICE Normaliser(Values x, std::int64_t units, const Team& team) {
      Real sum = 0;
      for (std::int64_t k = team.first(); k < units; k += team.step()) sum += x[k];
      mean = team.sum(sum) / static_cast<Real>(units);
      sum = 0;
      for (std::int64_t k = team.first(); k < units; k += team.step()) sum += (x[k] - mean) * (x[k] - mean);
      scale =
          1 / Math::sqrt(team.sum(sum) / static_cast<Real>(units) + static_cast<Real>(layer_norm_epsilon));
    }
    NMT_HOST_DEVICE Real operator()(Real x) const { return (x - mean) * scale; }
  };

  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    const std::int64_t n = s.units;
    const Normaliser<Math, Real> of_gate[4] = {
        {s.gates, n, team}, {s.gates + n, n, team}, {s.gates + 2 * n, n, team}, {s.gates + 3 * n, n, team}};
    // What is stored may be rounded, so the step goes on with what it was before.
    const auto gate = [&](int number, std::int64_t k) {
      const Real normalised = of_gate[number](s.gates[number * n + k]);
      s.gates[number * n + k] = normalised;
      return scaled_gate(s, number, k, normalised);
    };
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < n; k += team.step()) {
      const Real i = Math::sigmoid(gate(0, k)), j = Math::tanh(gate(1, k));
      const Real f = Math::sigmoid(gate(2, k) + s.forget_bias);
      s.c[k] = s.c_before[k] * f + i * j;
    }
    const Normaliser<Math, Real> of_cell(s.c, n, team);
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < n; k += team.step()) {
      const Real normalised = of_cell(s.c[k]), o = Math::sigmoid(gate(3, k));
      s.saved[4 * n + k] = normalised;
      s.c[k] = scaled_gate(s, 4, k, normalised);
      s.set_h(k, Math::tanh(s.c[k]) * o);
    }
    if (team.first() != 0) return;
    for (int g = 0; g < 4; ++g) s.saved[5 * n + g] = of_gate[g].scale;
    s.saved[5 * n + 4] = of_cell.scale;
  }
};

/// The gates of a step that is over.
template <typename Math, typename Real>
struct LayerNormGates {
  Real i, j, f, o;

  template <typename Values>
  NMT_HOST_DEVICE LayerNormGates(const CellRow<Real, Values>& s, std::int64_t k) {
    const auto scaled = [&](int gate) { return scaled_gate<Real>(s, gate, k, s.gates[gate * s.units + k]); };
    i = Math::sigmoid(scaled(0));
    j = Math::tanh(scaled(1));
    f = Math::sigmoid(scaled(2) + s.forget_bias);
    o = Math::sigmoid(scaled(3));
  }
};

/// `gates` become their gradients before normalisation, `scratch` [5 units] the gradients of the shifts,
/// `saved` [first 5 units] those of the gains.
struct LayerNormLstmBackward {
  static constexpr MaskedRow masked = MaskedRow::cut_off;

  /// From x = normalised values and d = gradients after the gain, which are those of the shift: `d_x` becomes
  /// the gradients before normalisation, `d_gain` those of the gain. These may be x, and d_x may be d.
  template <typename Real, typename Values, typename Gradients, typename Team>
  NMT_HOST_DEVICE static void normalise_backward(Values x, const Real* d, const Real* gain, Real scale,
                                                 Gradients d_x, Values d_gain, std::int64_t units,
                                                 const Team& team) {
    Real sum = 0, product = 0;
    for (std::int64_t k = team.first(); k < units; k += team.step()) {
      sum += d[k] * gain[k];
      product += d[k] * gain[k] * x[k];
    }
    const Real mean = team.sum(sum) / static_cast<Real>(units);
    const Real slope = team.sum(product) / static_cast<Real>(units);
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < units; k += team.step()) {
      const Real normalised = x[k], gradient = d[k];
      d_x[k] = scale * (gradient * gain[k] - mean - normalised * slope);
      d_gain[k] = gradient * normalised;
    }
  }

  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    const std::int64_t n = s.units;
    const Values normalised = s.saved + 4 * n, scales = s.saved + 5 * n;
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < n; k += team.step()) {
      const LayerNormGates<Math, Real> g(s, k);
      const Real t = Math::tanh(s.c[k]), d = s.d_after(k);
      s.scratch[3 * n + k] = d * t * g.o * (1 - g.o);
      s.scratch[4 * n + k] = s.d_c[k] = s.d_c[k] + d * g.o * (1 - t * t);
      s.d_h[k] = 0;
    }
    normalise_backward<Real>(normalised, s.d_c, s.gain + 4 * n, scales[4], s.d_c, normalised, n, team);
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < n; k += team.step()) {
      const LayerNormGates<Math, Real> g(s, k);
      const Real d = s.d_c[k];
      s.scratch[k] = d * g.j * g.i * (1 - g.i);
      s.scratch[n + k] = d * g.i * (1 - g.j * g.j);
      s.scratch[2 * n + k] = d * s.c_before[k] * g.f * (1 - g.f);
      s.d_c[k] = d * g.f;
    }
    for (int gate = 0; gate < 4; ++gate) {
      const Values gates = s.gates + gate * n;
      normalise_backward<Real>(gates, s.scratch + gate * n, s.gain + gate * n, scales[gate], gates,
                               s.saved + gate * n, n, team);
    }
  }
};

}  // namespace nmt
