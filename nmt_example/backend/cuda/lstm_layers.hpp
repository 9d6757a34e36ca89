#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "nmt_example/backend/backend.hpp"

namespace nmt::cuda {

/// A way to compute whole LSTM layers; see `Backend::lstm_layer_forward`. Both passes of a layer are queued
/// on a stream each, and the first has ended when the second begins. Not thread-safe.
class LstmLayers {
 public:
  LstmLayers() = default;
  LstmLayers(const LstmLayers&) = delete;
  LstmLayers& operator=(const LstmLayers&) = delete;
  virtual ~LstmLayers() = default;

  virtual bool forward(cudaStream_t stream, const Backend::LstmLayer& layer) = 0;
  virtual void backward(cudaStream_t stream, const Backend::LstmLayer& layer,
                        const Backend::LstmLayerBackward& gradients) = 0;
  virtual void parameters_changed() = 0;
};

/// cuDNN's, whose products of fp32 round their factors to tf32 if `tf32`. Throws `unsupported`, saying what
/// to do, where cuDNN is missing.
std::unique_ptr<LstmLayers> make_cudnn_lstm(cudaStream_t stream, bool tf32);

}  // namespace nmt::cuda
