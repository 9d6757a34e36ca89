#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddl/device.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/timeline.hpp"

namespace ddl::device {

/// The plan and the dimension of the plan that a recorded span belongs to.
struct PhaseOfPlan {
  std::uint64_t plan = 0;  ///< The plan's hash; 0 if the span belongs to no plan.
  int dimension = 0;
};

/// Records in the context's timeline what runs on a rank's device and when, on the host's clock. CUDA events
/// mark begin and end of each span and are read after they complete; no thread waits for them. Events are
/// created in advance, because creating one may block behind waiting kernels; a span that finds no unused
/// events is counted but not recorded. Thread-safe.
class DeviceTimeline {
 public:
  /// Uses the selected device. Waits for that device if the timeline is on.
  explicit DeviceTimeline(Timeline& timeline);
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  [[nodiscard]] bool is_on() const noexcept { return timeline_.is_on(); }
  /// Records the work that is queued on `stream` while the result lives; null if the span is not recorded.
  /// `bytes` is recorded unless it is 0.
  using Scope = std::shared_ptr<void>;
  [[nodiscard]] Scope scope(std::string name, DeviceStream stream, std::uint64_t bytes,
                            const PhaseOfPlan& phase = {});
  /// The number of spans that were not recorded.
  [[nodiscard]] std::uint64_t left_out() const;
  /// Hands completed spans to the timeline. Must be called regularly.
  void collect();

 private:
  struct Span {
    Event begin, end;
    std::string name;
    std::uint64_t bytes = 0;
    PhaseOfPlan phase = {};
  };

  void set_clock();
  [[nodiscard]] double ns_after_base(cudaEvent_t event) const;

  Timeline& timeline_;
  mutable std::mutex mutex_;  // not held while work is queued, because that may block
  Event base_;
  double base_ns_ = 0;       // the time of `base_` on the host's clock
  std::vector<Span> spans_;  // queued, not collected yet
  std::vector<Event> unused_;
  std::uint64_t left_out_ = 0;
};

/// Marks the calling thread's work during this object's lifetime for NVIDIA's profilers, in the domain "ddl".
/// Costs some nanoseconds if no profiler is attached.
class NvtxRange {
 public:
  /// `name` must live until the end of the program. `bytes` becomes the range's payload.
  NvtxRange(const char* name, std::uint64_t bytes) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = bytes;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange() { nvtxDomainRangePop(domain()); }

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t own = nvtxDomainCreateA("ddl");
    return own;
  }
};

}  // namespace ddl::device
