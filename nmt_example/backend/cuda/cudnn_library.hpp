#pragma once

#include <cudnn_adv.h>

namespace nmt::cuda {

/// cuDNN's recurrent layers, loaded when they are first used, so that programs also run where cuDNN is not
/// installed.
struct CudnnLibrary {
  /// Throws `unsupported`, saying what was looked for and what to do.
  static const CudnnLibrary& get();
  /// Looks for the library by its file name, as the dynamic loader does. It is never unloaded.
  explicit CudnnLibrary(const char* name);

  decltype(&::cudnnCreate) create;
  decltype(&::cudnnDestroy) destroy;
  decltype(&::cudnnSetStream) set_stream;
  decltype(&::cudnnGetErrorString) error_string;
  decltype(&::cudnnCreateTensorDescriptor) create_tensor;
  decltype(&::cudnnDestroyTensorDescriptor) destroy_tensor;
  decltype(&::cudnnSetTensorNdDescriptor) set_tensor;
  decltype(&::cudnnCreateDropoutDescriptor) create_dropout;
  decltype(&::cudnnDestroyDropoutDescriptor) destroy_dropout;
  decltype(&::cudnnSetDropoutDescriptor) set_dropout;
  decltype(&::cudnnCreateRNNDescriptor) create_rnn;
  decltype(&::cudnnDestroyRNNDescriptor) destroy_rnn;
  decltype(&::cudnnSetRNNDescriptor_v8) set_rnn;
  decltype(&::cudnnCreateRNNDataDescriptor) create_data;
  decltype(&::cudnnDestroyRNNDataDescriptor) destroy_data;
  decltype(&::cudnnSetRNNDataDescriptor) set_data;
  decltype(&::cudnnGetRNNWeightSpaceSize) weight_bytes;
  decltype(&::cudnnGetRNNWeightParams) weights;
  decltype(&::cudnnGetRNNTempSpaceSizes) work_bytes;
  decltype(&::cudnnRNNForward) forward;
  decltype(&::cudnnRNNBackwardData_v8) backward_data;
  decltype(&::cudnnRNNBackwardWeights_v8) backward_weights;
};

}  // namespace nmt::cuda
