#pragma once

#include "nmt_example/backend/cuda/device.cuh"

/// The arithmetic of a unit of an LSTM; see `Backend::LstmStep`.
namespace nmt::cuda {

/// A unit's gates, or their gradients.
struct LstmGates {
  float i, j, f, o;
};

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Replaces what goes into the gates by their activations, and `c` by the next; returns tanh(c). h is
/// gates.o times that.
__device__ inline float lstm_forward(LstmGates& gates, float& c) {
  gates = {sigmoid(gates.i), tanhf(gates.j), sigmoid(gates.f), sigmoid(gates.o)};
  c = c * gates.f + gates.i * gates.j;
  return tanhf(c);
}

/// Replaces the activations by the gradients of what goes into the gates, and `d_c` by the gradient of
/// `c_before`.
__device__ inline void lstm_backward(LstmGates& gates, float tanh_c, float c_before, float d_h, float& d_c) {
  const auto [i, j, f, o] = gates;
  const float d_cell = d_c + d_h * o * (1.0f - tanh_c * tanh_c);
  gates = {d_cell * j * i * (1.0f - i), d_cell * i * (1.0f - j * j), d_cell * c_before * f * (1.0f - f),
           d_h * tanh_c * o * (1.0f - o)};
  d_c = d_cell * f;
}

/// Of a step's row r and unit u.
__device__ inline LstmGates lstm_gates(const View& gates, Index r, Index u) {
  const Index units = gates.cols / 4;
  return {gates(r, u), gates(r, units + u), gates(r, 2 * units + u), gates(r, 3 * units + u)};
}
__device__ inline void set_lstm_gates(const View& gates, Index r, Index u, const LstmGates& values) {
  const Index units = gates.cols / 4;
  gates.set(r, u, values.i);
  gates.set(r, units + u, values.j);
  gates.set(r, 2 * units + u, values.f);
  gates.set(r, 3 * units + u, values.o);
}

}  // namespace nmt::cuda
