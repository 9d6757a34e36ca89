#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// An LSTM layer in plain loops, with a library's memory.
namespace emulated_lstm {

constexpr std::size_t gap = 40;  // elements between weights

inline std::size_t size(int a, int b = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

/// Where a weight space has its parts, in elements. Matrices 0 to 3 are the input's, of gates i, f, g, o; 4
/// to 7 are h's. Biases come after all matrices.
struct Weights {
  Weights(int inputs_, int units_) : inputs(size(inputs_)), units(size(units_)) {}
  [[nodiscard]] std::size_t matrix(int number) const {
    const auto n = static_cast<std::size_t>(number);
    return std::min<std::size_t>(n, 4) * (units * inputs + gap) + (n > 4 ? n - 4 : 0) * (units * units + gap);
  }
  [[nodiscard]] std::size_t bias(int number) const {
    return matrix(8) + static_cast<std::size_t>(number) * (units + gap);
  }
  [[nodiscard]] std::size_t count() const { return bias(8); }
  std::size_t inputs, units;
};

/// A layer's steps.
struct Layer {
  int steps, batch, inputs, units;
  bool is_exact;

  [[nodiscard]] std::size_t rows() const { return size(steps, batch); }
  /// For each row: gates i, f, g and o, which the backward pass replaces by their gradients; c; and a mark of
  /// which pass was last.
  [[nodiscard]] std::size_t reserve_bytes() const { return (rows() * 5 * size(units) + 1) * sizeof(float); }
  [[nodiscard]] std::size_t work_bytes() const { return size(batch, units) * sizeof(float); }
  /// A factor of a product.
  [[nodiscard]] float factor(float x) const {
    return is_exact ? x : std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffffe000u);
  }
  [[nodiscard]] float dot(const float* a, const float* b, std::size_t count) const {
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k)
      sum += static_cast<double>(factor(a[k])) * static_cast<double>(factor(b[k]));
    return static_cast<float>(sum);
  }
};

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

inline void forward(const Layer& layer, const Weights& at, const float* weights, const float* x, float* y,
                    const float* hx, float* hy, const float* cx, float* cy, float* reserve) {
  const std::size_t units = at.units, batch = size(layer.batch);
  std::vector<float> c(cx, cx + batch * units);
  for (std::size_t row = 0; row < layer.rows(); ++row) {
    const std::size_t b = row % batch;
    const float* const h = row < batch ? hx + b * units : y + (row - batch) * units;
    for (std::size_t u = 0; u < units; ++u) {
      float gate[4];
      for (int g = 0; g < 4; ++g) {
        const float sum = layer.dot(weights + at.matrix(g) + u * at.inputs, x + row * at.inputs, at.inputs) +
                          layer.dot(weights + at.matrix(4 + g) + u * units, h, units) +
                          weights[at.bias(g) + u] + weights[at.bias(4 + g) + u];
        gate[g] = g == 2 ? std::tanh(sum) : sigmoid(sum);
      }
      float& cell = c[b * units + u];
      cell = gate[1] * cell + gate[0] * gate[2];
      y[row * units + u] = gate[3] * std::tanh(cell);
      if (reserve == nullptr) continue;
      for (std::size_t g = 0; g < 4; ++g) reserve[(row * 5 + g) * units + u] = gate[g];
      reserve[(row * 5 + 4) * units + u] = cell;
    }
  }
  std::copy(y + (layer.rows() - batch) * units, y + layer.rows() * units, hy);
  std::ranges::copy(c, cy);
  if (reserve != nullptr) reserve[layer.rows() * 5 * units] = 1;
}

inline void backward_data(const Layer& layer, const Weights& at, const float* weights, const float* dy,
                          float* dx, const float* dhy, float* dhx, const float* cx, const float* dcy,
                          float* dcx, float* reserve) {
  const std::size_t units = at.units, batch = size(layer.batch);
  std::vector<float> dh(dhy, dhy + batch * units), dc(dcy, dcy + batch * units);
  for (std::size_t row = layer.rows(); row-- > 0;) {
    const std::size_t b = row % batch;
    float* const gates = reserve + row * 5 * units;
    for (std::size_t u = 0; u < units; ++u) {
      float &i = gates[u], &f = gates[units + u], &g = gates[2 * units + u], &o = gates[3 * units + u];
      const float t = std::tanh(gates[4 * units + u]);
      const float before = row < batch ? cx[b * units + u] : reserve[((row - batch) * 5 + 4) * units + u];
      const float d = dh[b * units + u] + dy[row * units + u];
      float& d_cell = dc[b * units + u];
      d_cell += d * o * (1 - t * t);
      const float di = d_cell * g * i * (1 - i), df = d_cell * before * f * (1 - f),
                  dg = d_cell * i * (1 - g * g), d_o = d * t * o * (1 - o);
      d_cell *= f;
      i = di, f = df, g = dg, o = d_o;
    }
    const auto back = [&](int first, std::size_t columns, float* to) {
      for (std::size_t k = 0; k < columns; ++k) {
        double sum = 0;
        for (int g = 0; g < 4; ++g) {
          for (std::size_t u = 0; u < units; ++u) {
            const float w = layer.factor(weights[at.matrix(first + g) + u * columns + k]);
            sum += static_cast<double>(layer.factor(gates[static_cast<std::size_t>(g) * units + u])) *
                   static_cast<double>(w);
          }
        }
        to[k] = static_cast<float>(sum);
      }
    };
    back(0, at.inputs, dx + row * at.inputs);
    back(4, units, dh.data() + b * units);
  }
  std::ranges::copy(dh, dhx);
  std::ranges::copy(dc, dcx);
  reserve[layer.rows() * 5 * units] = 2;
}

inline void backward_weights(const Layer& layer, const Weights& at, float* weights, const float* x,
                             const float* hx, const float* y, const float* reserve) {
  const std::size_t units = at.units, batch = size(layer.batch);
  // A NaN shows that there was no backward pass of the data.
  const float one = reserve[layer.rows() * 5 * units] == 2.0f ? 1.0f : NAN;
  for (std::size_t row = 0; row < layer.rows(); ++row) {
    const float* const h = row < batch ? hx + row * units : y + (row - batch) * units;
    for (int g = 0; g < 4; ++g) {
      for (std::size_t u = 0; u < units; ++u) {
        const float d = one * reserve[(row * 5 + static_cast<std::size_t>(g)) * units + u];
        for (std::size_t k = 0; k < at.inputs; ++k)
          weights[at.matrix(g) + u * at.inputs + k] += layer.factor(d) * layer.factor(x[row * at.inputs + k]);
        for (std::size_t k = 0; k < units; ++k)
          weights[at.matrix(4 + g) + u * units + k] += layer.factor(d) * layer.factor(h[k]);
        weights[at.bias(g) + u] += d;
        weights[at.bias(4 + g) + u] += d;
      }
    }
  }
}

}  // namespace emulated_lstm
