#pragma once

#include <cstdint>

// Rows of cells are computed by the same functions in fp32 with vectorised approximations, in fp64, and on
// devices: those differ in `Math` (sigmoid, tanh, sqrt), in `Team`, the threads that share a row, and in
// `Values`, what a row of activations is read and written through. They are inlined, so that the CPU's
// functions for several instruction sets contain them.
#if defined(__CUDACC__)
#define NMT_ALWAYS_INLINE inline
#define NMT_HOST_DEVICE __host__ __device__ inline
#define NMT_INDEPENDENT_ITERATIONS
#else
#define NMT_ALWAYS_INLINE [[gnu::always_inline]] inline
#define NMT_HOST_DEVICE NMT_ALWAYS_INLINE
#if defined(__clang__)
#define NMT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define NMT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif
#endif

namespace nmt {

/// One row of `Backend::CellRows`. Pointers to what is not given are null. Activations, which `Values` points
/// to, may be rounded when they are written.
template <typename RealType, typename ValuesType = RealType*>
struct CellRow {
  using Real = RealType;
  using Values = ValuesType;
  Values gates, saved;
  Real* scratch;
  const Real *bias, *gain;
  Values h_before, h, output, d_output, d_h;
  Real *c_before, *c, *d_c;
  std::int64_t units;
  Real forget_bias;

  /// The gradient of h after the step.
  [[nodiscard]] NMT_HOST_DEVICE Real d_after(std::int64_t k) const {
    return d_output != nullptr ? d_h[k] + d_output[k] : d_h[k];
  }
  NMT_HOST_DEVICE void set_h(std::int64_t k, Real value) const {
    h[k] = value;
    if (output != nullptr) output[k] = value;
  }
};

/// What becomes of a masked row.
enum class MaskedRow {
  computed,  ///< The same as of others.
  kept,      ///< The state stays, and the output is 0.
  cut_off,   ///< The state's gradient stays, and all others are 0.
};

/// A team of one thread.
struct OneThread {
  [[nodiscard]] static constexpr std::int64_t first() { return 0; }
  [[nodiscard]] static constexpr std::int64_t step() { return 1; }
  template <typename Real>
  [[nodiscard]] static Real sum(Real mine) {
    return mine;
  }
  template <typename Number>
  [[nodiscard]] static Number max(Number mine) {
    return mine;
  }
  /// Of what the members before this one have.
  [[nodiscard]] static double sum_before(double) { return 0; }
};

}  // namespace nmt
