#include "ddl/device/faster_from.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ddl/cuda_check.hpp"

namespace ddl::device {
namespace {

constexpr std::size_t least_bytes = std::size_t{256} << 10;
constexpr std::size_t most_bytes = std::size_t{64} << 20;
constexpr int warm_up = 2;
constexpr int timed = 5;

struct FreeDevice {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};

class Stopwatch {
 public:
  explicit Stopwatch(Context& context) : context_(context) {
    context.on_all_ranks("timing of collectives on devices", [&] {
      for (auto* buffer : {&input_, &output_}) {
        void* memory = nullptr;
        if (const cudaError_t result = cudaMalloc(&memory, most_bytes); result != cudaSuccess) {
          cudaGetLastError();
          throw Error(ErrorCode::unsupported,
                      fmt::format("rank {} cannot have {} bytes of device memory to measure with: {}; "
                                  "DeviceOptions::path makes that unnecessary",
                                  context.rank(), most_bytes, cudaGetErrorString(result)));
        }
        buffer->reset(static_cast<std::byte*>(memory));
        check_cuda(cudaMemset(memory, 0, most_bytes), "cudaMemset");
      }
      cudaStream_t stream = nullptr;
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      stream_.reset(stream);
      for (auto* event : {&begin_, &end_}) {
        cudaEvent_t made = nullptr;
        check_cuda(cudaEventCreate(&made), "cudaEventCreate");
        event->reset(made);
      }
    });
  }

  /// ms of a call, on the slowest rank.
  double time(DevicePath& path, std::size_t bytes) {
    const DeviceCall call{.collective = topology::Collective::all_reduce,
                          .input = input_.get(),
                          .output = output_.get(),
                          .count = bytes / sizeof(float),
                          .type = DataType::f32,
                          .stream = stream_.get()};
    context_.communicator().barrier();
    for (int i = 0; i < warm_up; ++i) path.run(call);
    check_cuda(cudaEventRecord(begin_.get(), stream_.get()), "cudaEventRecord");
    for (int i = 0; i < timed; ++i) path.run(call);
    check_cuda(cudaEventRecord(end_.get(), stream_.get()), "cudaEventRecord");
    check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    if (const auto failure = path.failure()) throw failure->error;
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
    double slowest = static_cast<double>(ms) / timed;
    context_.communicator().all_reduce(std::span(&slowest, 1), ReduceOp::max);
    return slowest;
  }

 private:
  Context& context_;
  std::unique_ptr<std::byte, FreeDevice> input_, output_;
  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  std::unique_ptr<CUevent_st, DestroyEvent> begin_, end_;
};

}  // namespace

std::size_t faster_from(Context& context, DevicePath& small, DevicePath& large) {
  Stopwatch stopwatch(context);
  std::size_t from = SIZE_MAX;
  for (std::size_t bytes = most_bytes; bytes >= least_bytes; bytes /= 4) {
    if (stopwatch.time(large, bytes) >= stopwatch.time(small, bytes)) break;
    from = bytes;
  }
  context.communicator().barrier();  // nobody gives back memory that another one's kernel reads
  return from;
}

}  // namespace ddl::device
