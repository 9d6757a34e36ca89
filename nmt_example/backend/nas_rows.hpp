#pragma once

#include "nmt_example/backend/cell_row.hpp"

namespace nmt {

/// A step of tf.contrib's NASCell without projection (Zoph and Le 2017, appendix A). `gates` and `saved`
/// [8 units each] are the products of the input and of h.
template <typename Math, typename Real>
struct NasStep {
  Real x3, m3, a[8], b[4], e0, e1, c, h;

  template <typename Values>
  NMT_HOST_DEVICE NasStep(const CellRow<Real, Values>& s, std::int64_t k) {
    const auto sum = [&](int i) { return s.gates[i * s.units + k] + s.saved[i * s.units + k]; };
    x3 = s.gates[3 * s.units + k];
    m3 = s.saved[3 * s.units + k];
    a[0] = Math::sigmoid(sum(0));
    a[1] = positive(sum(1));
    a[2] = Math::sigmoid(sum(2));
    a[3] = positive(x3 * m3);
    a[4] = Math::tanh(sum(4));
    a[5] = Math::sigmoid(sum(5));
    a[6] = Math::tanh(sum(6));
    a[7] = Math::sigmoid(sum(7));
    b[0] = Math::tanh(a[0] * a[1]);
    b[1] = Math::tanh(a[2] + a[3]);
    b[2] = Math::tanh(a[4] * a[5]);
    b[3] = Math::sigmoid(a[6] + a[7]);
    e0 = Math::tanh(b[0] + s.c_before[k]);
    e1 = Math::tanh(b[2] + b[3]);
    c = e0 * b[1];
    h = Math::tanh(c * e1);
  }
  NMT_HOST_DEVICE static Real positive(Real x) { return x > 0 ? x : Real(0); }
};

struct Nas {
  static constexpr MaskedRow masked = MaskedRow::kept;
  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const NasStep<Math, Real> step(s, k);
      s.c[k] = step.c;
      s.set_h(k, step.h);
    }
  }
};

/// `gates` and `saved` become their gradients.
struct NasBackward {
  static constexpr MaskedRow masked = MaskedRow::cut_off;
  template <typename Math, typename Real, typename Values, typename Team>
  NMT_HOST_DEVICE static void row(const CellRow<Real, Values>& s, const Team& team) {
    NMT_INDEPENDENT_ITERATIONS
    for (std::int64_t k = team.first(); k < s.units; k += team.step()) {
      const NasStep<Math, Real> step(s, k);
      const Real* const a = step.a;
      const Real* const b = step.b;
      const Real d_product = s.d_after(k) * (1 - step.h * step.h);
      const Real d_c = s.d_c[k] + d_product * step.e1;
      const Real d_e1 = d_product * step.c * (1 - step.e1 * step.e1);
      const Real d_e0 = d_c * b[1] * (1 - step.e0 * step.e0);
      const Real d_b0 = d_e0 * (1 - b[0] * b[0]);
      const Real d_b1 = d_c * step.e0 * (1 - b[1] * b[1]);
      const Real d_b2 = d_e1 * (1 - b[2] * b[2]);
      const Real d_b3 = d_e1 * b[3] * (1 - b[3]);
      const auto set = [&](int i, Real gradient) {
        s.gates[i * s.units + k] = s.saved[i * s.units + k] = gradient;
      };
      const Real d_a3 = a[3] > 0 ? d_b1 : Real(0);
      set(0, d_b0 * a[1] * a[0] * (1 - a[0]));
      set(1, a[1] > 0 ? d_b0 * a[0] : Real(0));
      set(2, d_b1 * a[2] * (1 - a[2]));
      s.gates[3 * s.units + k] = d_a3 * step.m3;
      s.saved[3 * s.units + k] = d_a3 * step.x3;
      set(4, d_b2 * a[5] * (1 - a[4] * a[4]));
      set(5, d_b2 * a[4] * a[5] * (1 - a[5]));
      set(6, d_b3 * (1 - a[6] * a[6]));
      set(7, d_b3 * a[7] * (1 - a[7]));
      s.d_h[k] = 0;
      s.d_c[k] = d_e0;
    }
  }
};

}  // namespace nmt
