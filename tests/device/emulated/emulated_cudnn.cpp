// cuDNN for emulated devices: a libcudnn.so.9 that computes LSTM layers in plain loops. Has only the
// functions that the library uses, and refuses what cuDNN refuses: unpacked layouts without padded input,
// backward passes of weights before those of data, work memory of other sizes. Without CUDNN_FMA_MATH,
// factors lose TF32's bits.

#include <cudnn_adv.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/emulated/emulated_cuda.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  std::vector<int> dimensions;
};
struct cudnnDropoutStruct {
  bool is_set = false;
};
struct cudnnRNNStruct {
  int inputs = 0, units = 0;
  bool is_exact = true;
};
struct cudnnRNNDataStruct {
  int steps = 0, batch = 0, vector = 0;
};

namespace {

constexpr char cudnn_kernel = 0;
constexpr std::size_t gap = 40;  // floats between weights

std::size_t size(int a, int b = 1) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

/// Where a weight space has its parts, in floats. Matrices 0 to 3 are the input's, of gates i, f, g, o; 4 to
/// 7 are h's. Biases come after all matrices.
struct Weights {
  explicit Weights(const cudnnRNNStruct& rnn) : inputs(size(rnn.inputs)), units(size(rnn.units)) {}
  [[nodiscard]] std::size_t matrix(int number) const {
    const auto n = static_cast<std::size_t>(number);
    return std::min<std::size_t>(n, 4) * (units * inputs + gap) + (n > 4 ? n - 4 : 0) * (units * units + gap);
  }
  [[nodiscard]] std::size_t bias(int number) const {
    return matrix(8) + static_cast<std::size_t>(number) * (units + gap);
  }
  [[nodiscard]] std::size_t bytes() const { return bias(8) * sizeof(float); }
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

Layer layer_of(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x) {
  return {x.steps, x.batch, rnn.inputs, rnn.units, rnn.is_exact};
}

bool fits(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x, const cudnnRNNDataStruct& y,
          const cudnnTensorStruct& h, const cudnnTensorStruct& c) {
  const std::vector<int> states = {1, x.batch, rnn.units};
  return x.vector == rnn.inputs && y.vector == rnn.units && x.steps == y.steps && x.batch == y.batch &&
         h.dimensions == states && c.dimensions == states;
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void forward(const Layer& layer, const Weights& at, const float* weights, const float* x, float* y,
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

void backward_data(const Layer& layer, const Weights& at, const float* weights, const float* dy, float* dx,
                   const float* dhy, float* dhx, const float* cx, const float* dcy, float* dcx,
                   float* reserve) {
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

void backward_weights(const Layer& layer, const Weights& at, float* weights, const float* x, const float* hx,
                      const float* y, const float* reserve) {
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

template <typename Body>
cudnnStatus_t queue(cudnnHandle_t handle, const Body& body) {
  const emulated_cuda::Launch launch{
      .kernel = &cudnn_kernel, .grid = dim3(1), .threads = dim3(256), .stream = handle->stream};
  const cudaError_t result = emulated_cuda::launch(launch, [body](const emulated_cuda::Spot&) { body(); });
  return result == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

template <typename T>
cudnnStatus_t make(T** object) {
  *object = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <typename T>
cudnnStatus_t destroy(T* object) {
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

const float* floats(const void* memory) { return static_cast<const float*>(memory); }
float* floats(void* memory) { return static_cast<float*>(memory); }

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return make(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t result) {
  return result == CUDNN_STATUS_SUCCESS ? "no error" : "an emulated error";
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) { return make(tensor); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) { return destroy(tensor); }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int count,
                                         const int dimensions[], const int strides[]) {
  if (type != CUDNN_DATA_FLOAT || count != 3) return CUDNN_STATUS_NOT_SUPPORTED;
  if (strides[2] != 1 || strides[1] != dimensions[2] || strides[0] != dimensions[1] * dimensions[2])
    return CUDNN_STATUS_BAD_PARAM;
  tensor->dimensions.assign(dimensions, dimensions + count);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* dropout) { return make(dropout); }
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropout) { return destroy(dropout); }
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t, float rate, void*,
                                        size_t, unsigned long long) {
  dropout->is_set = rate == 0.0f;
  return dropout->is_set ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* rnn) { return make(rnn); }
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) { return destroy(rnn); }
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t data, cudnnDataType_t precision, cudnnMathType_t math,
                                       int32_t inputs, int32_t units, int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  if (algorithm != CUDNN_RNN_ALGO_STANDARD || mode != CUDNN_LSTM || bias != CUDNN_RNN_DOUBLE_BIAS ||
      direction != CUDNN_UNIDIRECTIONAL || input != CUDNN_LINEAR_INPUT || data != CUDNN_DATA_FLOAT ||
      precision != CUDNN_DATA_FLOAT || projection != units || layers != 1)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (!dropout->is_set || flags != CUDNN_RNN_PADDED_IO_ENABLED) return CUDNN_STATUS_BAD_PARAM;
  *rnn = {inputs, units, math == CUDNN_FMA_MATH};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* data) { return make(data); }
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data) { return destroy(data); }
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int batch, int vector,
                                        const int lengths[], void*) {
  if (type != CUDNN_DATA_FLOAT || layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (steps <= 0 || batch <= 0 || vector <= 0) return CUDNN_STATUS_BAD_PARAM;
  if (std::any_of(lengths, lengths + batch, [&](int length) { return length != steps; }))
    return CUDNN_STATUS_NOT_SUPPORTED;
  *data = {steps, batch, vector};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  *bytes = Weights(*rnn).bytes();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t rnn, int32_t layer, size_t bytes,
                                      const void* space, int32_t number, cudnnTensorDescriptor_t,
                                      void** matrix, cudnnTensorDescriptor_t, void** bias) {
  const Weights at(*rnn);
  if (layer != 0 || bytes != at.bytes() || number < 0 || number > 7) return CUDNN_STATUS_BAD_PARAM;
  float* const first = floats(const_cast<void*>(space));
  *matrix = first + at.matrix(number);
  *bias = first + at.bias(number);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t* work, size_t* reserve) {
  const Layer layer = layer_of(*rnn, *x);
  *work = layer.work_bytes();
  if (reserve != nullptr) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? layer.reserve_bytes() : 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t[], cudnnRNNDataDescriptor_t x_data, const void* x,
                              cudnnRNNDataDescriptor_t y_data, void* y, cudnnTensorDescriptor_t h_tensor,
                              const void* hx, void* hy, cudnnTensorDescriptor_t c_tensor, const void* cx,
                              void* cy, size_t weight_bytes, const void* weights, size_t work_bytes, void*,
                              size_t reserve_bytes, void* reserve) {
  const Layer layer = layer_of(*rnn, *x_data);
  const bool trains = mode == CUDNN_FWD_MODE_TRAINING;
  if (!fits(*rnn, *x_data, *y_data, *h_tensor, *c_tensor) || weight_bytes != Weights(*rnn).bytes() ||
      work_bytes < layer.work_bytes() || (trains && reserve_bytes < layer.reserve_bytes()))
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, [=, at = Weights(*rnn)] {
    forward(layer, at, floats(weights), floats(x), floats(y), floats(hx), floats(hy), floats(cx), floats(cy),
            trains ? floats(reserve) : nullptr);
  });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t[],
                                      cudnnRNNDataDescriptor_t y_data, const void*, const void* dy,
                                      cudnnRNNDataDescriptor_t x_data, void* dx,
                                      cudnnTensorDescriptor_t h_tensor, const void*, const void* dhy,
                                      void* dhx, cudnnTensorDescriptor_t c_tensor, const void* cx,
                                      const void* dcy, void* dcx, size_t weight_bytes, const void* weights,
                                      size_t work_bytes, void*, size_t reserve_bytes, void* reserve) {
  const Layer layer = layer_of(*rnn, *x_data);
  if (!fits(*rnn, *x_data, *y_data, *h_tensor, *c_tensor) || weight_bytes != Weights(*rnn).bytes() ||
      work_bytes < layer.work_bytes() || reserve_bytes < layer.reserve_bytes())
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, [=, at = Weights(*rnn)] {
    backward_data(layer, at, floats(weights), floats(dy), floats(dx), floats(dhy), floats(dhx), floats(cx),
                  floats(dcy), floats(dcx), floats(reserve));
  });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const int32_t[],
                                         cudnnRNNDataDescriptor_t x_data, const void* x,
                                         cudnnTensorDescriptor_t h_tensor, const void* hx,
                                         cudnnRNNDataDescriptor_t y_data, const void* y, size_t weight_bytes,
                                         void* d_weights, size_t work_bytes, void*, size_t reserve_bytes,
                                         void* reserve) {
  const Layer layer = layer_of(*rnn, *x_data);
  if (mode != CUDNN_WGRAD_MODE_ADD) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!fits(*rnn, *x_data, *y_data, *h_tensor, *h_tensor) || weight_bytes != Weights(*rnn).bytes() ||
      work_bytes < layer.work_bytes() || reserve_bytes < layer.reserve_bytes())
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, [=, at = Weights(*rnn)] {
    backward_weights(layer, at, floats(d_weights), floats(x), floats(hx), floats(y), floats(reserve));
  });
}

}  // extern "C"
