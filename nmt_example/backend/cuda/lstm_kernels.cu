#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

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
    const float i = sigmoid(before(0));
    const float j = tanhf(before(1));
    const float f = sigmoid(before(2) + forget_bias);
    const float o = sigmoid(before(3));
    const float c = c_prev(from, u) * f + i * j;
    const float t = tanhf(c);
    gates.set(r, u, i);
    gates.set(r, units + u, j);
    gates.set(r, 2 * units + u, f);
    gates.set(r, 3 * units + u, o);
    cell.set(r, u, c);
    tanh_c.set(r, u, t);
    h.set(r, u, o * t);
    if (output.data != nullptr) output.set(r, u, o * t);
  });
}

void lstm_cell_backward(cudaStream_t stream, const Backend::LstmStepBackward& s) {
  const View gates = s.gates, c_prev = s.c_prev, tanh_c = s.tanh_c, d_output = s.d_output, d_h = s.d_h,
             d_h_prev = s.d_h_prev, d_c = s.d_c;
  const Indices lengths = s.lengths;
  const Index step = s.step;
  for_each(stream, s.d_c.rows, s.d_c.cols, [=] __device__(Index r, Index u) {
    const Index units = d_c.cols;
    const float d_above = d_h(r, u);
    if (is_masked(lengths, step, r)) {
      for (int g = 0; g < 4; ++g) gates.set(r, g * units + u, 0.0f);
      if (d_h_prev.data != nullptr) d_h_prev.set(r, u, d_above);
      return;
    }
    const float i = gates(r, u), j = gates(r, units + u), f = gates(r, 2 * units + u),
                o = gates(r, 3 * units + u), t = tanh_c(r, u);
    const float d_hidden = d_above + (d_output.data != nullptr ? d_output(r, u) : 0.0f);
    const float d_cell = d_c(r, u) + d_hidden * o * (1.0f - t * t);
    gates.set(r, u, d_cell * j * i * (1.0f - i));
    gates.set(r, units + u, d_cell * i * (1.0f - j * j));
    gates.set(r, 2 * units + u, d_cell * c_prev(r, u) * f * (1.0f - f));
    gates.set(r, 3 * units + u, d_hidden * t * o * (1.0f - o));
    d_c.set(r, u, d_cell * f);
    if (d_h_prev.data != nullptr) d_h_prev.set(r, u, 0.0f);
  });
}

}  // namespace nmt::cuda
