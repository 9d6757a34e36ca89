#include "ddl/device/gradients/cuda_gradient_queue.hpp"

#include <fmt/format.h>

#include <exception>

#include "ddl/cuda_check.hpp"
#include "ddl/device/gradients/gradient_kernels.hpp"
#include "ddl/device/nvtx_range.hpp"
#include "ddl/error.hpp"

namespace ddl {

using gradient_pass::Bucket;
using gradient_pass::Outcome;

CudaGradientQueue::CudaGradientQueue(DeviceCommunicator& communicator) : communicator_(communicator) {
  communicator.context().on_all_ranks("gradients on devices", [&] {
    check_cuda(gradient_pass::load_gradient_kernels(), "cudaFuncGetAttributes");
    int least = 0;
    int greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
    stream_.reset(stream);
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    event_.reset(event);
    void* fetched = nullptr;
    check_cuda(cudaHostAlloc(&fetched, sizeof(Outcome), cudaHostAllocDefault), "cudaHostAlloc");
    fetched_.reset(static_cast<Outcome*>(fetched));
  });
}

CudaGradientQueue::~CudaGradientQueue() {
  try {
    if (stream_) communicator_.release(stream_.get());
  } catch (const std::exception&) {
    // What failed is known, or will be: the communicator keeps it. Its kernels do not wait any more.
    cudaStreamSynchronize(stream_.get());
  }
}

std::byte* CudaGradientQueue::allocate_shared(std::size_t bytes) {
  return communicator_.allocate(bytes).data;
}

std::byte* CudaGradientQueue::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const std::size_t wanted = bytes > 0 ? bytes : 1;
  if (const cudaError_t result = cudaMalloc(&memory, wanted); result != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorCode::unsupported,
                fmt::format("DeviceGradientReducer: rank {} cannot have {} bytes of device memory: {}",
                            communicator_.rank(), wanted, cudaGetErrorString(result)));
  }
  memory_.emplace_back(static_cast<std::byte*>(memory));
  check_cuda(cudaMemsetAsync(memory, 0, wanted, stream_.get()), "cudaMemsetAsync");
  check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  return memory_.back().get();
}

void CudaGradientQueue::upload(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

bool CudaGradientQueue::reaches(const void* data, std::size_t bytes) const {
  return communicator_.reaches(data, bytes);
}

/// An event may be recorded again at once: who waits for it waits for what it held by then.
void CudaGradientQueue::follow(Stream stream) {
  check_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream_.get(), event_.get(), 0), "cudaStreamWaitEvent");
}

void CudaGradientQueue::precede(Stream stream) {
  check_cuda(cudaEventRecord(event_.get(), stream_.get()), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
}

void CudaGradientQueue::zero(void* data, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(data, 0, bytes, stream_.get()), "cudaMemsetAsync");
}

void CudaGradientQueue::set(double* to, double value) {
  check_cuda(gradient_pass::launch_set(to, value, stream_.get()), "launch of set");
}

void CudaGradientQueue::add_scaled(float* target, const float* source, std::size_t count, double weight) {
  check_cuda(gradient_pass::launch_add_scaled(target, source, count, weight, stream_.get()),
             "launch of add_scaled");
}

void CudaGradientQueue::pack(const Bucket& bucket, double weight, bool adds_accumulated) {
  const device::NvtxRange range("pack", bucket.count * sizeof(float));
  const auto scope = communicator_.scope("pack", stream_.get(), bucket.count * sizeof(float));
  check_cuda(gradient_pass::launch_pack(bucket, weight, adds_accumulated, stream_.get()), "launch of pack");
}

void CudaGradientQueue::all_reduce(void* data, std::size_t count, DataType type) {
  if (communicator_.size() == 1) return;
  communicator_.all_reduce(data, data, count, type, ReduceOp::sum, stream_.get());
}

void CudaGradientQueue::unpack(const Bucket& bucket, const Unpacking& unpacking) {
  const device::NvtxRange range("unpack", bucket.count * sizeof(float));
  const auto scope = communicator_.scope("unpack", stream_.get(), bucket.count * sizeof(float));
  if (unpacking.exact_squares != nullptr) {
    return check_cuda(gradient_pass::launch_unpack_exactly(bucket, unpacking.weight, unpacking.own,
                                                           unpacking.exact_squares, stream_.get()),
                      "launch of unpack");
  }
  check_cuda(gradient_pass::launch_unpack(bucket, unpacking.weight, unpacking.own, unpacking.sums_of_squares,
                                          stream_.get()),
             "launch of unpack");
}

std::size_t CudaGradientQueue::sums_of_unpacking() const noexcept { return gradient_pass::unpacking_blocks; }

void CudaGradientQueue::add_up(const double* values, std::size_t count, double* sum) {
  check_cuda(gradient_pass::launch_add_up(values, count, sum, stream_.get()), "launch of add_up");
}

void CudaGradientQueue::carry(ExactSquares* squares, bool has_problem) {
  check_cuda(gradient_pass::launch_carry(squares, has_problem, stream_.get()), "launch of carry");
}

void CudaGradientQueue::add_up(ExactSquares* squares, double* sum) {
  check_cuda(gradient_pass::launch_add_up(squares, sum, stream_.get()), "launch of add_up");
}

void CudaGradientQueue::conclude(const double* weight, const double* squares, bool leave_sums,
                                 Outcome* outcome) {
  check_cuda(gradient_pass::launch_conclude(weight, squares, leave_sums, outcome, stream_.get()),
             "launch of conclude");
}

Outcome CudaGradientQueue::fetch(const Outcome* outcome) {
  check_cuda(cudaMemcpyAsync(fetched_.get(), outcome, sizeof *outcome, cudaMemcpyDeviceToHost, stream_.get()),
             "cudaMemcpyAsync");
  communicator_.wait(stream_.get());
  return *fetched_;
}

}  // namespace ddl
