#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/device_path.hpp"
#include "ddl/device/nccl/nccl_group.hpp"
#include "ddl/device/nccl/scatter_gather.hpp"

namespace ddl::device {

/// Collectives by NCCL: over all ranks at once, and large all-reduces on several hosts, if the topology's
/// plan says that it is faster, as a reduce-scatter inside the hosts, an all-reduce between them and an
/// all-gather inside, chunk after chunk on two streams. A thread looks after what is queued: NCCL's kernels
/// wait for ever.
class NcclPath : public DevicePath {
 public:
  /// On the device that is selected. Collective; errors are agreed: `unsupported` without NCCL, or where
  /// ranks share a device (NCCL refuses that), and NcclGroup's.
  explicit NcclPath(Context& context);
  ~NcclPath() override;

  void run(const DeviceCall& call) override;
  [[nodiscard]] std::optional<Error> failure() override;
  void abort() noexcept override;
  void close(bool in_order) noexcept override;

 private:
  struct DestroyStream {
    void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  };
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
  };
  using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
  using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
  struct Pending {
    Event done;
    std::string call;
  };

  void run_on_all(const DeviceCall& call);
  void run_by_dimension(const DeviceCall& call);
  [[nodiscard]] bool is_faster_by_dimension(const DeviceCall& call);
  void join(cudaStream_t first, cudaStream_t then);
  Event take_event();
  void look_after();

  Context& context_;
  int device_ = -1;
  std::unique_ptr<NcclGroup> all_;
  std::unique_ptr<NcclGroup> inner_;  // of this host; null unless the hosts have as many ranks each
  std::unique_ptr<NcclGroup> outer_;  // of this rank's like on all hosts
  std::vector<std::optional<bool>> by_dimension_;  // by the logarithm of the bytes
  Stream inner_stream_, outer_stream_;
  std::byte* meeting_ = nullptr;  // what barriers reduce

  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ending_ = false;
  std::deque<Pending> pending_;
  std::vector<Event> unused_;
  std::optional<Error> failure_;
  std::thread watchdog_;
};

}  // namespace ddl::device
