#include "ddl/device/device_timeline.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/device/cuda_check.hpp"

namespace ddl::device {
namespace {

constexpr double ns_each_ms = 1e6;
/// The time between CUDA events is a float in milliseconds, whose error reaches 0.5 us after some seconds.
constexpr double longest_from_base_ns = 4e9;
constexpr int tries = 5;
constexpr std::size_t events = 2048;

}  // namespace

DeviceTimeline::DeviceTimeline(Timeline& timeline) : timeline_(timeline) {
  if (!is_on()) return;
  for (std::size_t i = 0; i < events; ++i) unused_.push_back(make_event(cudaEventDefault));
  set_clock();
}

/// Records an event between two readings of the host's clock, and keeps the try with the shortest interval.
void DeviceTimeline::set_clock() {
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

DeviceTimeline::Scope DeviceTimeline::scope(std::string name, DeviceStream stream, std::uint64_t bytes,
                                            const PhaseOfPlan& phase) {
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

std::uint64_t DeviceTimeline::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

double DeviceTimeline::ns_after_base(cudaEvent_t event) const {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, base_.get(), event), "cudaEventElapsedTime");
  return static_cast<double>(ms) * ns_each_ms;
}

void DeviceTimeline::collect() {
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
      timeline_.add(
          "device", span.name, begin, end,
          {bytes, {"plan", static_cast<std::int64_t>(span.phase.plan)}, {"dimension", span.phase.dimension}});
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

}  // namespace ddl::device
