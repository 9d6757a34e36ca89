#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/device/cuda_check.hpp"
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
  explicit DeviceTimeline(Timeline& timeline) : timeline_(timeline) {
    if (!is_on()) return;
    for (std::size_t i = 0; i < events; ++i) unused_.push_back(make_event(cudaEventDefault));
    set_clock();
  }

  DeviceTimeline& operator=(DeviceTimeline&&) = delete;

  [[nodiscard]] bool is_on() const noexcept { return timeline_.is_on(); }
  /// Records the work that is queued on `stream` while the result lives; null if the span is not recorded.
  /// `bytes` is recorded unless it is 0.
  using Scope = std::shared_ptr<void>;
  [[nodiscard]] Scope scope(std::string name, DeviceStream stream, std::uint64_t bytes,
                            const PhaseOfPlan& phase = {}) {
    if (!is_on() || is_capturing(stream)) return nullptr;  // events in a captured graph have no time
    const auto span = std::make_shared<Span>(Span{{}, {}, std::move(name), bytes, phase});
    {
      const std::lock_guard lock(mutex_);
      if (unused_.size() < 2) {
        ++left_out_;
        return nullptr;
      }
      for (Event* event : {&span->begin, &span->end}) {
        *event = std::move(unused_.back());
        unused_.pop_back();
      }
    }
    check_cuda(cudaEventRecord(span->begin.get(), stream), "cudaEventRecord");
    return {span.get(), [this, span, stream](void*) {
              // If the device is lost, the next call reports it.
              if (cudaEventRecord(span->end.get(), stream) != cudaSuccess) return;
              const std::lock_guard lock(mutex_);
              spans_.push_back(std::move(*span));
            }};
  }

  /// The number of spans that were not recorded.
  [[nodiscard]] std::uint64_t left_out() const {
    const std::lock_guard lock(mutex_);
    return left_out_;
  }

  /// Hands completed spans to the timeline. Must be called regularly.
  void collect() {
    if (!is_on()) return;
    const std::lock_guard lock(mutex_);
    const auto passed = std::ranges::stable_partition(
        spans_, [](const Span& span) { return cudaEventQuery(span.end.get()) != cudaSuccess; });
    cudaGetLastError();  // clears cudaErrorNotReady
    for (Span& span : passed) {
      const double begin_ns = ns_after_base(span.begin.get());
      const double end_ns = ns_after_base(span.end.get());
      const auto begin = static_cast<std::int64_t>(base_ns_ + begin_ns);
      const auto end = static_cast<std::int64_t>(base_ns_ + end_ns);
      const Timeline::Argument bytes{"bytes", static_cast<std::int64_t>(span.bytes)};
      if (span.phase.plan != 0) {
        timeline_.add("device", span.name, begin, end,
                      {bytes,
                       {"plan", static_cast<std::int64_t>(span.phase.plan)},
                       {"dimension", span.phase.dimension}});
      } else if (span.bytes != 0) {
        timeline_.add("device", span.name, begin, end, {bytes});
      } else {
        timeline_.add("device", span.name, begin, end);
      }
      if (end_ns > longest_from_base_ns) {
        base_ns_ += end_ns;
        std::swap(base_, span.end);
      }
      unused_.push_back(std::move(span.begin));
      unused_.push_back(std::move(span.end));
    }
    spans_.erase(passed.begin(), passed.end());
  }

 private:
  static constexpr double ns_each_ms = 1e6;
  /// The time between CUDA events is a float in milliseconds, whose error reaches 0.5 us after some seconds.
  static constexpr double longest_from_base_ns = 4e9;
  static constexpr int tries = 5;
  static constexpr std::size_t events = 2048;

  struct Span {
    Event begin, end;
    std::string name;
    std::uint64_t bytes = 0;
    PhaseOfPlan phase = {};
  };

  /// Records an event between two readings of the host's clock, and keeps the try with the shortest interval.
  void set_clock() {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < tries; ++i) {
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const std::int64_t before = Timeline::now_ns();
      Event event = make_event(cudaEventDefault);
      check_cuda(cudaEventRecord(event.get(), nullptr), "cudaEventRecord");
      check_cuda(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
      const std::int64_t after = Timeline::now_ns();
      if (after - before >= least) continue;
      least = after - before;
      base_ns_ = static_cast<double>(before + after) / 2;
      base_ = std::move(event);
    }
  }

  [[nodiscard]] double ns_after_base(cudaEvent_t event) const {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, base_.get(), event), "cudaEventElapsedTime");
    return static_cast<double>(ms) * ns_each_ms;
  }

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
  NvtxRange& operator=(NvtxRange&&) = delete;
  ~NvtxRange() { nvtxDomainRangePop(domain()); }

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t own = nvtxDomainCreateA("ddl");
    return own;
  }
};

}  // namespace ddl::device
