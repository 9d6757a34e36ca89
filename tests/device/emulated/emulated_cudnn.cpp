// cuDNN for emulated devices: a libcudnn.so.9 that computes LSTM layers in plain loops. Has only the
// functions that the library uses, and refuses what cuDNN refuses: unpacked layouts without padded input,
// backward passes of weights before those of data, work memory of other sizes. Without CUDNN_FMA_MATH,
// factors of fp32 lose TF32's bits. Sums are fp32, and rounded where they are stored.

#include <cudnn_adv.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ddl/float16.hpp"
#include "device/emulated/emulated_cuda.hpp"
#include "device/emulated/emulated_lstm.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  std::vector<int> dimensions;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
};
struct cudnnDropoutStruct {
  bool is_set = false;
};
struct cudnnRNNStruct {
  int inputs = 0, units = 0;
  bool is_exact = true;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
};
struct cudnnRNNDataStruct {
  int steps = 0, batch = 0, vector = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
};

namespace {

using namespace emulated_lstm;

constexpr char cudnn_kernel = 0;

bool is_known(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
}
std::size_t size_of(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }

/// Numbers of any type, as fp32.
std::vector<float> read(const void* from, std::size_t count, cudnnDataType_t type) {
  std::vector<float> values(count);
  const auto copy = [&]<typename T>(const T* source) {
    std::transform(source, source + count, values.begin(), [](T x) { return static_cast<float>(x); });
  };
  if (type == CUDNN_DATA_FLOAT) copy(static_cast<const float*>(from));
  if (type == CUDNN_DATA_BFLOAT16) copy(static_cast<const ddl::bfloat16*>(from));
  if (type == CUDNN_DATA_HALF) copy(static_cast<const ddl::float16*>(from));
  return values;
}
void write(const std::vector<float>& values, void* to, cudnnDataType_t type) {
  const auto copy = [&]<typename T>(T* target) {
    std::transform(values.begin(), values.end(), target, [](float x) { return T(x); });
  };
  if (type == CUDNN_DATA_FLOAT) copy(static_cast<float*>(to));
  if (type == CUDNN_DATA_BFLOAT16) copy(static_cast<ddl::bfloat16*>(to));
  if (type == CUDNN_DATA_HALF) copy(static_cast<ddl::float16*>(to));
}

/// A weight space of a type.
struct Space : Weights {
  explicit Space(const cudnnRNNStruct& rnn) : Weights(rnn.inputs, rnn.units), type(rnn.type) {}
  [[nodiscard]] std::size_t bytes() const { return count() * size_of(type); }
  cudnnDataType_t type;
};

Layer layer_of(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x) {
  return {x.steps, x.batch, rnn.inputs, rnn.units, rnn.is_exact};
}

bool fits(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x, const cudnnRNNDataStruct& y,
          const cudnnTensorStruct& h, const cudnnTensorStruct& c) {
  const std::vector<int> states = {1, x.batch, rnn.units};
  return x.vector == rnn.inputs && y.vector == rnn.units && x.steps == y.steps && x.batch == y.batch &&
         h.dimensions == states && c.dimensions == states && x.type == rnn.type && y.type == rnn.type &&
         h.type == rnn.type && c.type == rnn.type;
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
  if (!is_known(type) || count != 3) return CUDNN_STATUS_NOT_SUPPORTED;
  if (strides[2] != 1 || strides[1] != dimensions[2] || strides[0] != dimensions[1] * dimensions[2])
    return CUDNN_STATUS_BAD_PARAM;
  tensor->dimensions.assign(dimensions, dimensions + count);
  tensor->type = type;
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
      direction != CUDNN_UNIDIRECTIONAL || input != CUDNN_LINEAR_INPUT || !is_known(data) ||
      precision != CUDNN_DATA_FLOAT || projection != units || layers != 1)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (!dropout->is_set || flags != CUDNN_RNN_PADDED_IO_ENABLED) return CUDNN_STATUS_BAD_PARAM;
  *rnn = {inputs, units, data != CUDNN_DATA_FLOAT || math == CUDNN_FMA_MATH, data};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* data) { return make(data); }
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data) { return destroy(data); }
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int batch, int vector,
                                        const int lengths[], void*) {
  if (!is_known(type) || layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (steps <= 0 || batch <= 0 || vector <= 0) return CUDNN_STATUS_BAD_PARAM;
  if (std::any_of(lengths, lengths + batch, [&](int length) { return length != steps; }))
    return CUDNN_STATUS_NOT_SUPPORTED;
  *data = {steps, batch, vector, type};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  *bytes = Space(*rnn).bytes();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t rnn, int32_t layer, size_t bytes,
                                      const void* space, int32_t number, cudnnTensorDescriptor_t,
                                      void** matrix, cudnnTensorDescriptor_t, void** bias) {
  const Space at(*rnn);
  if (layer != 0 || bytes != at.bytes() || number < 0 || number > 7) return CUDNN_STATUS_BAD_PARAM;
  auto* const first = static_cast<std::byte*>(const_cast<void*>(space));
  *matrix = first + at.matrix(number) * size_of(at.type);
  *bias = first + at.bias(number) * size_of(at.type);
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
  if (!fits(*rnn, *x_data, *y_data, *h_tensor, *c_tensor) || weight_bytes != Space(*rnn).bytes() ||
      work_bytes < layer.work_bytes() || (trains && reserve_bytes < layer.reserve_bytes()))
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, [=, at = Space(*rnn)] {
    const std::size_t states = size(layer.batch, layer.units);
    std::vector<float> to(layer.rows() * at.units), last_h(states), last_c(states);
    forward(layer, at, read(weights, at.count(), at.type).data(),
            read(x, layer.rows() * at.inputs, at.type).data(), to.data(), read(hx, states, at.type).data(),
            last_h.data(), read(cx, states, at.type).data(), last_c.data(),
            trains ? static_cast<float*>(reserve) : nullptr);
    write(to, y, at.type);
    write(last_h, hy, at.type);
    write(last_c, cy, at.type);
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
  if (!fits(*rnn, *x_data, *y_data, *h_tensor, *c_tensor) || weight_bytes != Space(*rnn).bytes() ||
      work_bytes < layer.work_bytes() || reserve_bytes < layer.reserve_bytes())
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, [=, at = Space(*rnn)] {
    const std::size_t states = size(layer.batch, layer.units);
    std::vector<float> to(layer.rows() * at.inputs), first_h(states), first_c(states);
    backward_data(layer, at, read(weights, at.count(), at.type).data(),
                  read(dy, layer.rows() * at.units, at.type).data(), to.data(),
                  read(dhy, states, at.type).data(), first_h.data(), read(cx, states, at.type).data(),
                  read(dcy, states, at.type).data(), first_c.data(), static_cast<float*>(reserve));
    write(to, dx, at.type);
    write(first_h, dhx, at.type);
    write(first_c, dcx, at.type);
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
  if (!fits(*rnn, *x_data, *y_data, *h_tensor, *h_tensor) || weight_bytes != Space(*rnn).bytes() ||
      work_bytes < layer.work_bytes() || reserve_bytes < layer.reserve_bytes())
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, [=, at = Space(*rnn)] {
    std::vector<float> to = read(d_weights, at.count(), at.type);
    backward_weights(layer, at, to.data(), read(x, layer.rows() * at.inputs, at.type).data(),
                     read(hx, size(layer.batch, layer.units), at.type).data(),
                     read(y, layer.rows() * at.units, at.type).data(), static_cast<const float*>(reserve));
    write(to, d_weights, at.type);
  });
}

}  // extern "C"
