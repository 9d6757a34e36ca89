#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "ddl/communicator.hpp"
#include "ddl/device/runtime/device_path.hpp"
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
  /// Ends its kernels; nothing more can be queued. Any thread, also while another one is in a call that
  /// blocks, because the launch queue is full of kernels that wait.
  void abort() noexcept;

 private:
  /// Queues a collective.
  template <typename Function>
  void call(const char* name, const Function& function);
  void leave_call() noexcept;
  void abort_communicator() noexcept;
  ncclComm_t set_up(const ncclUniqueId& id) const;
  [[nodiscard]] ncclResult_t within_deadline(const char* name, std::function<ncclResult_t()> function) const;
  [[nodiscard]] Error error_of(ncclResult_t result, const char* function) const;

  const NcclLibrary& nccl_;
  std::string name_;
  int rank_;
  int size_;
  std::chrono::nanoseconds deadline_;
  mutable std::mutex mutex_;  // of what follows; no launch is made under it
  ncclComm_t communicator_ = nullptr;
  bool is_in_call_ = false;
  bool is_aborted_ = false;
};

}  // namespace ddl::device
