#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "nmt_example/backend/backend.hpp"

/// Kernels that compute all steps of an LSTM layer of 16 bits. Each block owns some units, whose recurrent
/// weights it keeps in shared memory; all blocks are resident, and wait for each other after each step.
namespace nmt::cuda {

/// How a layer's units are shared among blocks.
struct PersistentPlan {
  int slice = 0;  ///< Units of a block; 0: the device cannot compute such a layer.
  std::size_t forward_bytes = 0, backward_bytes = 0;  ///< Of shared memory.
};
/// Of the current device.
PersistentPlan persistent_plan(std::int64_t units, ddl::DataType type);

/// What the kernels work with: `exchange` for what blocks give each other, zeros; `state` [batch, units] of
/// fp32, of the backward pass; `arrived`, 0.
struct PersistentMemory {
  void* exchange;
  float* state;
  unsigned* arrived;
};
std::size_t persistent_exchange_bytes(std::int64_t batch, std::int64_t columns);

/// `layer.gates` holds the products with x. The first states are in `layer`, and the first h in the first
/// rows of the exchange memory.
void persistent_lstm_forward(cudaStream_t stream, const PersistentPlan& plan, const Backend::LstmLayer& layer,
                             const PersistentMemory& memory);
/// The gradients of gates, and those before the first step.
void persistent_lstm_backward(cudaStream_t stream, const PersistentPlan& plan,
                              const Backend::LstmLayer& layer, const Backend::LstmLayerBackward& gradients,
                              const PersistentMemory& memory);

}  // namespace nmt::cuda
