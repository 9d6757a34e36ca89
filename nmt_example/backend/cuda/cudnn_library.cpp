#include "nmt_example/backend/cuda/cudnn_library.hpp"

#include <cstdlib>

#include "nmt_example/backend/cuda/late_library.hpp"

namespace nmt::cuda {

const CudnnLibrary& CudnnLibrary::get() {
  static const CudnnLibrary library("libcudnn.so.9");
  return library;
}

CudnnLibrary::CudnnLibrary(const char* name) {
  // Otherwise cuBLAS inside cuDNN shares its workspace between streams, and sums in any order.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2", 0);
  const LateLibrary library(name, "cuDNN",
                            "Install cuDNN 9 (PyTorch's packages have it in nvidia/cudnn/lib), and see that "
                            "LD_LIBRARY_PATH names its folder, or use --rnn=loop");
  library.bind(create, "cudnnCreate");
  library.bind(destroy, "cudnnDestroy");
  library.bind(set_stream, "cudnnSetStream");
  library.bind(error_string, "cudnnGetErrorString");
  library.bind(create_tensor, "cudnnCreateTensorDescriptor");
  library.bind(destroy_tensor, "cudnnDestroyTensorDescriptor");
  library.bind(set_tensor, "cudnnSetTensorNdDescriptor");
  library.bind(create_dropout, "cudnnCreateDropoutDescriptor");
  library.bind(destroy_dropout, "cudnnDestroyDropoutDescriptor");
  library.bind(set_dropout, "cudnnSetDropoutDescriptor");
  library.bind(create_rnn, "cudnnCreateRNNDescriptor");
  library.bind(destroy_rnn, "cudnnDestroyRNNDescriptor");
  library.bind(set_rnn, "cudnnSetRNNDescriptor_v8");
  library.bind(create_data, "cudnnCreateRNNDataDescriptor");
  library.bind(destroy_data, "cudnnDestroyRNNDataDescriptor");
  library.bind(set_data, "cudnnSetRNNDataDescriptor");
  library.bind(weight_bytes, "cudnnGetRNNWeightSpaceSize");
  library.bind(weights, "cudnnGetRNNWeightParams");
  library.bind(work_bytes, "cudnnGetRNNTempSpaceSizes");
  library.bind(forward, "cudnnRNNForward");
  library.bind(backward_data, "cudnnRNNBackwardData_v8");
  library.bind(backward_weights, "cudnnRNNBackwardWeights_v8");
}

}  // namespace nmt::cuda
