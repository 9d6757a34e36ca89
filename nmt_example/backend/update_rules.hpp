#pragma once

#include <cmath>
#include <cstdint>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cell_row.hpp"

// The formulas of `Backend::update`, one element at a time, for every backend and type. A rule says which
// values it reads besides the parameter and which it changes.

namespace nmt {

/// One element of a parameter, its gradient and its state.
template <typename Real>
struct UpdateElement {
  Real value, gradient, m, v;
  Real measured;  ///< Set by rules that measure.
};

/// The settings as the formulas need them, rounded once.
template <typename Real>
struct UpdateFactors {
  Real gradient_scale, learning_rate, scaled_rate, weight_decay, shrinkage;
  Real beta1, beta2, mean_scale, step_size, root_scale, epsilon;
};

template <typename Real>
NMT_HOST_DEVICE UpdateFactors<Real> factors_of(const UpdateSettings& s, bool decays,
                                               const StepFactors& step) {
  const double weight_decay = decays ? s.weight_decay * step.decay_scale : 0;
  return {static_cast<Real>(step.gradient_scale),
          static_cast<Real>(step.learning_rate),
          static_cast<Real>(step.learning_rate * step.gradient_scale),
          static_cast<Real>(weight_decay),
          static_cast<Real>(step.learning_rate * weight_decay),
          static_cast<Real>(s.beta1),
          static_cast<Real>(s.beta2),
          static_cast<Real>(1.0 / step.correction1),
          static_cast<Real>(step.learning_rate / step.correction1),
          static_cast<Real>(1.0 / std::sqrt(step.correction2)),
          static_cast<Real>(s.epsilon)};
}

/// Of settings that the host knows.
inline StepFactors given_factors(const UpdateSettings& s) {
  return step_factors(s.gradient_scale, s.learning_rate, s.beta1, s.beta2, s.step);
}

/// Of a layer. `given`: of settings that the host knows.
NMT_HOST_DEVICE StepFactors step_of(const UpdateSettings& s, std::int32_t layer, const StepFactors& given) {
  if (s.layers != nullptr) return s.layers[layer].factors;
  return s.factors != nullptr ? *s.factors : given;
}

/// The elements of a range.
inline UpdateTensors part_of(const UpdateTensors& t, const UpdateRange& range) {
  const auto part = [&](const Tensor& x, std::int64_t first) {
    return x.data == nullptr ? x : x.col_range(first, range.count);
  };
  return {.values = part(t.values, range.first),
          .gradients = part(t.gradients, range.first),
          .m = part(t.m, range.moment),
          .v = part(t.v, range.moment)};
}

/// What a rule reads and changes.
struct UpdateUse {
  bool gradient = true;   ///< Reads the gradient.
  bool m = false;         ///< Reads m.
  bool v = false;         ///< Reads v.
  bool moments = false;   ///< Changes the ones that it reads.
  bool value = true;      ///< Changes the parameter.
  bool measures = false;  ///< Gives sums of squares: of the parameter, which stays, and of `measured`.
};

struct NormsRule {
  static constexpr UpdateUse use{.value = false, .measures = true};
  template <typename Math, typename Real>
  NMT_HOST_DEVICE static void apply(const UpdateFactors<Real>&, UpdateElement<Real>& e) {
    e.measured = e.gradient;
  }
};

/// Weight decay and the gradient's step are subtracted one after the other, so that without decay the result
/// has the bits of the step alone.
struct SgdRule {
  static constexpr UpdateUse use{};
  template <typename Math, typename Real>
  NMT_HOST_DEVICE static void apply(const UpdateFactors<Real>& k, UpdateElement<Real>& e) {
    const Real kept = e.value - k.shrinkage * e.value;
    e.value = kept - k.scaled_rate * e.gradient;
  }
};

template <bool nesterov>
struct MomentumRule {
  static constexpr UpdateUse use{.m = true, .moments = true};
  template <typename Math, typename Real>
  NMT_HOST_DEVICE static void apply(const UpdateFactors<Real>& k, UpdateElement<Real>& e) {
    const Real gradient = k.gradient_scale * e.gradient + k.weight_decay * e.value;
    e.m = k.beta1 * e.m + gradient;
    e.value -= k.learning_rate * (nesterov ? gradient + k.beta1 * e.m : e.m);
  }
};

/// Adam's moving means of the gradient and of its square.
template <typename Real>
NMT_HOST_DEVICE void move_moments(const UpdateFactors<Real>& k, UpdateElement<Real>& e) {
  const Real g = e.gradient * k.gradient_scale;
  e.m = k.beta1 * e.m + (1 - k.beta1) * g;
  e.v = k.beta2 * e.v + (1 - k.beta2) * g * g;
}

struct AdamRule {
  static constexpr UpdateUse use{.m = true, .v = true, .moments = true};
  template <typename Math, typename Real>
  NMT_HOST_DEVICE static void apply(const UpdateFactors<Real>& k, UpdateElement<Real>& e) {
    move_moments(k, e);
    const Real kept = e.value - k.shrinkage * e.value;
    e.value = kept - k.step_size * e.m / (Math::sqrt(e.v) * k.root_scale + k.epsilon);
  }
};

/// The direction in which LAMB moves, before it is scaled by the tensor's norms.
template <typename Math, typename Real>
NMT_HOST_DEVICE Real lamb_direction(const UpdateFactors<Real>& k, const UpdateElement<Real>& e) {
  return k.mean_scale * e.m / (Math::sqrt(e.v) * k.root_scale + k.epsilon) + k.weight_decay * e.value;
}

struct LambMomentsRule {
  static constexpr UpdateUse use{.m = true, .v = true, .moments = true, .value = false, .measures = true};
  template <typename Math, typename Real>
  NMT_HOST_DEVICE static void apply(const UpdateFactors<Real>& k, UpdateElement<Real>& e) {
    move_moments(k, e);
    e.measured = lamb_direction<Math>(k, e);
  }
};

/// Computes the direction once more, which takes no memory.
struct LambStepRule {
  static constexpr UpdateUse use{.gradient = false, .m = true, .v = true};
  template <typename Math, typename Real>
  NMT_HOST_DEVICE static void apply(const UpdateFactors<Real>& k, UpdateElement<Real>& e) {
    e.value -= k.learning_rate * lamb_direction<Math>(k, e);
  }
};

/// Calls f with an object of the rule's type.
template <typename F>
NMT_ALWAYS_INLINE void with_rule(UpdateRule rule, const F& f) {
  switch (rule) {
    case UpdateRule::norms:
      return f(NormsRule());
    case UpdateRule::sgd:
      return f(SgdRule());
    case UpdateRule::momentum:
      return f(MomentumRule<false>());
    case UpdateRule::nesterov:
      return f(MomentumRule<true>());
    case UpdateRule::adam:
      return f(AdamRule());
    case UpdateRule::lamb_moments:
      return f(LambMomentsRule());
    case UpdateRule::lamb_step:
      return f(LambStepRule());
  }
}

inline UpdateUse use_of(UpdateRule rule) {
  UpdateUse use;
  with_rule(rule, [&]<typename Rule>(const Rule&) { use = Rule::use; });
  return use;
}

/// A tensor's elements; of an unused or empty one, null.
template <typename Real, typename Gradient = Real>
struct UpdateArrays {
  Real* values;
  Gradient* gradients;
  Real *m, *v;

  explicit UpdateArrays(const UpdateTensors& t)
      : values(t.values.as<Real>()),
        gradients(t.gradients.as<Gradient>()),
        m(t.m.as<Real>()),
        v(t.v.as<Real>()) {}

  /// Updates element i; returns what it is then, and what was measured of it.
  template <typename Rule, typename Math, bool zeroes_gradient>
  NMT_HOST_DEVICE UpdateElement<Real> update(const UpdateFactors<Real>& k, std::int64_t i) const {
    UpdateElement<Real> e{values[i], 0, 0, 0, 0};
    if constexpr (Rule::use.gradient) e.gradient = static_cast<Real>(gradients[i]);
    if constexpr (Rule::use.m) e.m = m[i];
    if constexpr (Rule::use.v) e.v = v[i];
    Rule::template apply<Math>(k, e);
    if constexpr (Rule::use.value) values[i] = e.value;
    if constexpr (Rule::use.moments && Rule::use.m) m[i] = e.m;
    if constexpr (Rule::use.moments && Rule::use.v) v[i] = e.v;
    if constexpr (zeroes_gradient) gradients[i] = Gradient(0.0f);
    return e;
  }
};

}  // namespace nmt
