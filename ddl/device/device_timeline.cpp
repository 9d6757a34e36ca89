#include "ddl/device/device_timeline.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "ddl/cuda_check.hpp"

namespace ddl::device {
namespace {

constexpr double ns_each_ms = 1e6;
/// An event's time is a float of milliseconds from another's: half a microsecond is lost after some seconds.
constexpr double longest_from_base_ns = 4e9;
constexpr int tries = 5;
constexpr std::size_t events = 2048;

}  // namespace

DeviceTimeline::DeviceTimeline(Timeline& timeline) : timeline_(timeline) {
  if (!is_on()) return;
  for (std::size_t i = 0; i < events; ++i) unused_.push_back(make_timed_event());
  set_clock();
}

/// The base is an event that the host has seen pass; the try with the least doubt counts.
void DeviceTimeline::set_clock() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < tries; ++i) {
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const std::int64_t before = Timeline::now_ns();
    Event event = make_timed_event();
    check_cuda(cudaEventRecord(event.get(), nullptr), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
    const std::int64_t after = Timeline::now_ns();
    if (after - before >= least) continue;
    least = after - before;
    base_ns_ = static_cast<double>(before + after) / 2;
    base_ = std::move(event);
  }
}

/// Under the mutex.
Event DeviceTimeline::take_event() {
  Event event = std::move(unused_.back());
  unused_.pop_back();
  return event;
}

std::uint64_t DeviceTimeline::begin(DeviceStream stream) {
  if (is_capturing(stream)) return 0;  // an event of a captured graph has no time
  Event first, last;
  {
    const std::lock_guard lock(mutex_);
    if (unused_.size() < 2) {
      ++left_out_;
      return 0;
    }
    first = take_event();
    last = take_event();
  }
  check_cuda(cudaEventRecord(first.get(), stream), "cudaEventRecord");
  const std::lock_guard lock(mutex_);
  spans_.push_back({++begun_, std::move(first), std::move(last), {}});
  return begun_;
}

void DeviceTimeline::end(std::uint64_t begun, DeviceStream stream, std::string name, std::uint64_t bytes,
                         const PhaseOfPlan& phase) {
  if (begun == 0) return;
  const auto span_of = [&] {
    return std::ranges::find(spans_.rbegin(), spans_.rend(), begun, &Span::number);
  };
  cudaEvent_t last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto span = span_of();
    if (span == spans_.rend()) return;
    last = span->end.get();
  }
  check_cuda(cudaEventRecord(last, stream), "cudaEventRecord");
  const std::lock_guard lock(mutex_);
  const auto span = span_of();
  span->name = std::move(name);
  span->bytes = bytes;
  span->phase = phase;
  span->is_queued = true;
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
  for (auto span = spans_.begin(); span != spans_.end();) {
    if (!span->is_queued || cudaEventQuery(span->end.get()) != cudaSuccess) {
      ++span;
      continue;
    }
    const double begin = ns_after_base(span->begin.get());
    const double end = ns_after_base(span->end.get());
    const auto at = [&](double ns) { return static_cast<std::int64_t>(base_ns_ + ns); };
    if (span->phase.plan != 0) {
      timeline_.add("device", span->name, at(begin), at(end),
                    {{"bytes", static_cast<std::int64_t>(span->bytes)},
                     {"plan", static_cast<std::int64_t>(span->phase.plan)},
                     {"dimension", span->phase.dimension}});
    } else if (span->bytes != 0) {
      timeline_.add("device", span->name, at(begin), at(end),
                    {{"bytes", static_cast<std::int64_t>(span->bytes)}});
    } else {
      timeline_.add("device", span->name, at(begin), at(end));
    }
    unused_.push_back(std::move(span->begin));
    if (end > longest_from_base_ns) {
      base_ns_ += end;
      std::swap(base_, span->end);
    }
    unused_.push_back(std::move(span->end));
    span = spans_.erase(span);
  }
  cudaGetLastError();  // that an event is not there yet
}

}  // namespace ddl::device
