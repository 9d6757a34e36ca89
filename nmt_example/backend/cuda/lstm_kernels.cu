#include <cassert>

#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

/// A unit's gates, or their gradients.
struct LstmGates {
  float i, j, f, o;
};

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Replaces what goes into the gates by their activations, and `c` by the next; returns tanh(c). h is
/// gates.o times that.
__device__ float lstm_forward(LstmGates& gates, float& c) {
  gates = {sigmoid(gates.i), tanhf(gates.j), sigmoid(gates.f), sigmoid(gates.o)};
  c = c * gates.f + gates.i * gates.j;
  return tanhf(c);
}

/// Replaces the activations by the gradients of what goes into the gates, and `d_c` by the gradient of
/// `c_before`.
__device__ void lstm_backward(LstmGates& gates, float tanh_c, float c_before, float d_h, float& d_c) {
  const auto [i, j, f, o] = gates;
  const float d_cell = d_c + d_h * o * (1.0f - tanh_c * tanh_c);
  gates = {d_cell * j * i * (1.0f - i), d_cell * i * (1.0f - j * j), d_cell * c_before * f * (1.0f - f),
           d_h * tanh_c * o * (1.0f - o)};
  d_c = d_cell * f;
}

__device__ bool is_masked(const Indices& lengths, Index step, Index row) {
  return lengths.size != 0 && step >= lengths.data[row];
}

/// The four gates of a pack of units.
template <int n>
struct GatePacks {
  Pack<float, n> i, j, f, o;

  template <typename T>
  __device__ GatePacks(const Matrix<T>& gates, Index units, Index r, Index u)
      : i(gates.load(r, u, Width<n>())),
        j(gates.load(r, units + u, Width<n>())),
        f(gates.load(r, 2 * units + u, Width<n>())),
        o(gates.load(r, 3 * units + u, Width<n>())) {}
  template <typename T>
  __device__ void store(const Matrix<T>& gates, Index units, Index r, Index u) const {
    gates.store(r, u, i);
    gates.store(r, units + u, j);
    gates.store(r, 2 * units + u, f);
    gates.store(r, 3 * units + u, o);
  }
  __device__ void operator+=(const GatePacks& other) {
    i += other.i;
    j += other.j;
    f += other.f;
    o += other.o;
  }
  __device__ LstmGates of(int k) const { return {i[k], j[k], f[k], o[k]}; }
  __device__ void set(int k, const LstmGates& gates) {
    i[k] = gates.i;
    j[k] = gates.j;
    f[k] = gates.f;
    o[k] = gates.o;
  }
};

/// Few, because a step has few units: 128 sentences of 1,024 units should keep all multiprocessors busy.
constexpr int units_of_thread = 2;

bool has_packs_of_gates(Index units) { return units % units_of_thread == 0; }

template <typename T>
void forward(cudaStream_t stream, const Backend::LstmStep& s) {
  const Matrix<T> gates(s.gates), h_prev(s.h_prev), h(s.h), tanh_c(s.tanh_c), output(s.output);
  const Matrix<float> c_prev(s.c_prev), cell(s.c), products(s.products), bias(s.bias);
  const Indices lengths = s.lengths, sources = s.sources;
  const Index step = s.step, units = s.c.cols;
  const auto forget_bias = static_cast<float>(s.forget_bias);
  const bool packs = has_packs_of_gates(units) && moves_packs(s.gates, s.h_prev, s.h, s.tanh_c, s.output,
                                                              s.c_prev, s.c, s.products, s.bias);
  for_each_pack<units_of_thread>(stream, s.c.rows, units, packs, [=] __device__(Index r, Index u, auto n) {
    const Index from = sources.size != 0 ? Index{sources.data[r]} : r;
    if (is_masked(lengths, step, r)) {
      cell.store(r, u, c_prev.load(from, u, n));
      h.store(r, u, h_prev.load(from, u, n));
      if (output.data != nullptr) output.store(r, u, Pack<float, n>{});
      return;
    }
    GatePacks<n> all(gates, units, r, u);
    auto c = c_prev.load(from, u, n);
    if (products.data != nullptr) all += GatePacks<n>(products, units, from, u);
    all += GatePacks<n>(bias, units, 0, u);
    Pack<float, n> tanhs, states;
    for (int k = 0; k < n; ++k) {
      LstmGates of_unit = all.of(k);
      of_unit.f += forget_bias;
      tanhs[k] = lstm_forward(of_unit, c[k]);
      states[k] = of_unit.o * tanhs[k];
      all.set(k, of_unit);
    }
    all.store(gates, units, r, u);
    cell.store(r, u, c);
    tanh_c.store(r, u, tanhs);
    h.store(r, u, states);
    if (output.data != nullptr) output.store(r, u, states);
  });
}

template <typename T>
void backward(cudaStream_t stream, const Backend::LstmStepBackward& s) {
  const Matrix<T> gates(s.gates), tanh_c(s.tanh_c), d_output(s.d_output), d_h(s.d_h), d_h_prev(s.d_h_prev);
  const Matrix<float> c_prev(s.c_prev), d_c(s.d_c);
  const Indices lengths = s.lengths;
  const Index step = s.step, units = s.d_c.cols;
  const bool packs = has_packs_of_gates(units) &&
                     moves_packs(s.gates, s.tanh_c, s.d_output, s.d_h, s.d_h_prev, s.c_prev, s.d_c);
  for_each_pack<units_of_thread>(stream, s.d_c.rows, units, packs, [=] __device__(Index r, Index u, auto n) {
    auto d_above = d_h.load(r, u, n);
    if (is_masked(lengths, step, r)) {
      for (int g = 0; g < 4; ++g) gates.store(r, g * units + u, Pack<float, n>{});
      if (d_h_prev.data != nullptr) d_h_prev.store(r, u, d_above);
      return;
    }
    GatePacks<n> all(gates, units, r, u);
    const auto tanhs = tanh_c.load(r, u, n), before = c_prev.load(r, u, n);
    auto d_cell = d_c.load(r, u, n);
    if (d_output.data != nullptr) d_above += d_output.load(r, u, n);
    for (int k = 0; k < n; ++k) {
      LstmGates of_unit = all.of(k);
      lstm_backward(of_unit, tanhs[k], before[k], d_above[k], d_cell[k]);
      all.set(k, of_unit);
    }
    all.store(gates, units, r, u);
    d_c.store(r, u, d_cell);
    if (d_h_prev.data != nullptr) d_h_prev.store(r, u, Pack<float, n>{});
  });
}

}  // namespace

void lstm_cell_forward(cudaStream_t stream, const Backend::LstmStep& s) {
  assert(s.c.type == ddl::DataType::f32 && s.h.type == s.gates.type);
  with_type(s.gates.type, [&]<typename T>(T) { forward<T>(stream, s); });
}

void lstm_cell_backward(cudaStream_t stream, const Backend::LstmStepBackward& s) {
  assert(s.d_c.type == ddl::DataType::f32 && s.d_h.type == s.gates.type);
  with_type(s.gates.type, [&]<typename T>(T) { backward<T>(stream, s); });
}

}  // namespace nmt::cuda
