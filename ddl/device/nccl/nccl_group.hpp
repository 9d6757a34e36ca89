#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "ddl/communicator.hpp"
#include "ddl/device/device_path.hpp"
#include "ddl/device/nccl/nccl_library.hpp"

namespace ddl::device {

/// NCCL's communicator of some ranks. One thread at a time, but for `abort` and `failure`.
class NcclGroup {
 public:
  /// Of the ranks of `members`, each on the device that it has selected. Collective among them. Throws
  /// `timeout` once `deadline` has passed, `internal` with what NCCL says.
  NcclGroup(std::string name, const Communicator& members, const ncclUniqueId& id,
            std::chrono::nanoseconds deadline);
  /// For a group's members, drawn by one of them. Throws `internal`.
  static ncclUniqueId draw_id();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  // Queue one of NCCL's operations; counts as its functions have them.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  cudaStream_t stream);
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      cudaStream_t stream);
  void all_gather(const void* input, void* output, std::size_t count, DataType type, cudaStream_t stream);
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                 cudaStream_t stream);
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              cudaStream_t stream);

  /// What NCCL has noticed meanwhile. Any thread.
  [[nodiscard]] std::optional<Error> failure() const;
  /// Ends its kernels; nothing more can be queued. Any thread, once.
  void abort() noexcept;

 private:
  /// Calls NCCL, and waits for what it does in the background, such as the set-up of a communicator.
  template <typename Function>
  void call(const char* name, const Function& function);
  [[nodiscard]] Error error_of(ncclResult_t result, const char* function) const;

  const NcclLibrary& nccl_;
  std::string name_;
  int rank_;
  int size_;
  std::chrono::nanoseconds deadline_;
  ncclComm_t communicator_ = nullptr;
  mutable std::mutex mutex_;  // held for each of NCCL's functions
  bool is_aborted_ = false;
};

}  // namespace ddl::device
