#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddl/device.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/timeline.hpp"

namespace ddl::device {

/// Of which plan something is a part, and of which of its dimensions.
struct PhaseOfPlan {
  std::uint64_t plan = 0;  ///< Its hash; 0: of none.
  int dimension = 0;
};

/// What runs on a rank's device, and when, for the context's timeline: events on streams, which are read when
/// they have passed, on the host's clock. Nobody waits for them. Events are made beforehand, because making
/// one may wait for kernels that wait; what begins while all are in use is counted, but not recorded. Any
/// thread.
class DeviceTimeline {
 public:
  /// On the device that is selected. Waits for it, if the timeline is on.
  explicit DeviceTimeline(Timeline& timeline);
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  [[nodiscard]] bool is_on() const noexcept { return timeline_.is_on(); }
  /// What is queued on `stream` as long as the result lives. `bytes` is told if it is not 0. Null if it is
  /// not recorded.
  using Scope = std::shared_ptr<void>;
  [[nodiscard]] Scope scope(std::string name, DeviceStream stream, std::uint64_t bytes,
                            const PhaseOfPlan& phase = {});
  /// How many have not been recorded.
  [[nodiscard]] std::uint64_t left_out() const;
  /// Hands over what has passed. To be called now and then.
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
  mutable std::mutex mutex_;  // not held while something is queued, which may block
  Event base_;
  double base_ns_ = 0;       // of the host's clock
  std::vector<Span> spans_;  // that are queued
  std::vector<Event> unused_;
  std::uint64_t left_out_ = 0;
};

}  // namespace ddl::device
