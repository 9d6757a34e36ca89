#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "ddl/device.hpp"
#include "ddl/gradients/gradient_queue.hpp"

namespace ddl {

/// A stream of the communicator's device, ahead of others that are ready to run.
class CudaGradientQueue : public GradientQueue {
 public:
  /// Loads the kernels. Collective.
  explicit CudaGradientQueue(DeviceCommunicator& communicator);
  /// Waits for what is queued; memory that others may still use after a failure is not given back.
  ~CudaGradientQueue() override;

  std::byte* allocate_shared(std::size_t bytes) override;
  std::byte* allocate(std::size_t bytes) override;
  void upload(void* to, const void* from, std::size_t bytes) override;
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const override;
  void follow(Stream stream) override;
  void precede(Stream stream) override;
  void zero(void* data, std::size_t bytes) override;
  void set(double* to, double value) override;
  void add_scaled(float* target, const float* source, std::size_t count, double weight) override;
  void pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated) override;
  void all_reduce(void* data, std::size_t count, DataType type) override;
  void unpack(const gradient_pass::Bucket& bucket, const Unpacking& unpacking) override;
  [[nodiscard]] std::size_t sums_of_unpacking() const noexcept override;
  void add_up(const double* values, std::size_t count, double* sum) override;
  void carry(ExactSquares* squares, bool has_problem) override;
  void add_up(ExactSquares* squares, double* sum) override;
  void conclude(const double* weight, const double* squares, bool leave_sums,
                gradient_pass::Outcome* outcome) override;
  gradient_pass::Outcome fetch(const gradient_pass::Outcome* outcome) override;

 private:
  struct DestroyStream {
    void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  };
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
  };
  struct FreeDevice {
    void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
  };
  struct FreePinned {
    void operator()(gradient_pass::Outcome* memory) const noexcept { cudaFreeHost(memory); }
  };

  DeviceCommunicator& communicator_;
  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  std::unique_ptr<CUevent_st, DestroyEvent> event_;
  std::unique_ptr<gradient_pass::Outcome, FreePinned> fetched_;
  std::vector<std::unique_ptr<std::byte, FreeDevice>> memory_;
};

}  // namespace ddl
