#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/cuda/lstm_cell.cuh"

namespace nmt::cuda {
namespace {

__device__ bool is_masked(const Indices& lengths, Index step, Index row) {
  return lengths.size != 0 && step >= lengths.data[row];
}

}  // namespace

void lstm_cell_forward(cudaStream_t stream, const Backend::LstmStep& s) {
  const View gates = s.gates, c_prev = s.c_prev, h_prev = s.h_prev, cell = s.c, h = s.h, tanh_c = s.tanh_c,
             output = s.output, products = s.products;
  const float* const bias = s.bias.as<float>();
  const Indices lengths = s.lengths, sources = s.sources;
  const Index step = s.step;
  const auto forget_bias = static_cast<float>(s.forget_bias);
  for_each(stream, s.c.rows, s.c.cols, [=] __device__(Index r, Index u) {
    const Index units = cell.cols;
    const Index from = sources.size != 0 ? Index{sources.data[r]} : r;
    if (is_masked(lengths, step, r)) {
      cell.set(r, u, c_prev(from, u));
      h.set(r, u, h_prev(from, u));
      if (output.data != nullptr) output.set(r, u, 0.0f);
      return;
    }
    const auto before = [&](Index g) {
      const float rest = products.data != nullptr ? products(from, g * units + u) : 0.0f;
      return gates(r, g * units + u) + rest + bias[g * units + u];
    };
    LstmGates of_unit{before(0), before(1), before(2) + forget_bias, before(3)};
    float c = c_prev(from, u);
    const float t = lstm_forward(of_unit, c);
    set_lstm_gates(gates, r, u, of_unit);
    cell.set(r, u, c);
    tanh_c.set(r, u, t);
    h.set(r, u, of_unit.o * t);
    if (output.data != nullptr) output.set(r, u, of_unit.o * t);
  });
}

void lstm_cell_backward(cudaStream_t stream, const Backend::LstmStepBackward& s) {
  const View gates = s.gates, c_prev = s.c_prev, tanh_c = s.tanh_c, d_output = s.d_output, d_h = s.d_h,
             d_h_prev = s.d_h_prev, d_c = s.d_c;
  const Indices lengths = s.lengths;
  const Index step = s.step;
  for_each(stream, s.d_c.rows, s.d_c.cols, [=] __device__(Index r, Index u) {
    const float d_above = d_h(r, u);
    if (is_masked(lengths, step, r)) {
      set_lstm_gates(gates, r, u, {});
      if (d_h_prev.data != nullptr) d_h_prev.set(r, u, d_above);
      return;
    }
    LstmGates of_unit = lstm_gates(gates, r, u);
    float d_cell = d_c(r, u);
    lstm_backward(of_unit, tanh_c(r, u), c_prev(r, u),
                  d_above + (d_output.data != nullptr ? d_output(r, u) : 0.0f), d_cell);
    set_lstm_gates(gates, r, u, of_unit);
    d_c.set(r, u, d_cell);
    if (d_h_prev.data != nullptr) d_h_prev.set(r, u, 0.0f);
  });
}

}  // namespace nmt::cuda
