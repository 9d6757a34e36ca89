#include "ddl/device/cuda_handles.hpp"

#include "ddl/cuda_check.hpp"

namespace ddl::device {

Stream make_stream() {
  cudaStream_t made = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(made);
}

Stream make_urgent_stream() {
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t made = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest),
             "cudaStreamCreateWithPriority");
  return Stream(made);
}

Event make_event() {
  cudaEvent_t made = nullptr;
  check_cuda(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(made);
}

bool has_come(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // it must not be blamed on the next launch
    return false;
  }
  check_cuda(result, "cudaEventQuery");
  return true;
}

}  // namespace ddl::device
