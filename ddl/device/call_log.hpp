#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "collectives/watch/flight_recorder.hpp"
#include "ddl/device/device_executor.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Records a device communicator's calls in the rank's flight recorder. No thread waits for calls, so
/// `update` polls for completed ones, at the latest when the records are read. Thread-safe.
class CallLog {
 public:
  /// Both arguments must outlive the log. `executor` runs the calls and must not have run any yet.
  CallLog(collectives::FlightRecorder& recorder, DeviceExecutor& executor)
      : recorder_(recorder), executor_(executor) {
    communicator_ = recorder_.add_on_devices([this] { update(); });
  }

  CallLog& operator=(CallLog&&) = delete;
  ~CallLog() { recorder_.remove_on_devices(communicator_); }

  /// Records a call that is about to be queued.
  collectives::CallId begin(const DeviceCall& call) {
    const std::lock_guard lock(mutex_);
    const collectives::CallId called{topology::to_string(call.collective),
                                     communicator_,
                                     ++sequence_,
                                     call.count,
                                     call.type,
                                     call.op,
                                     topology::has_root(call.collective) ? call.root : -1,
                                     collectives::CallsFor::now()};
    entries_.push_back({called, recorder_.called(called), {}});
    recorder_.begun(entries_.back().record);
    return called;
  }

  /// Records that the executor has queued the last call. Only for the thread that makes the calls.
  void queued() {
    const std::lock_guard lock(mutex_);
    entries_.back().given = executor_.given();
  }

  /// Records which calls have completed. Must be called regularly.
  void update() {
    const GroupCalls completed = executor_.completed();
    const std::lock_guard lock(mutex_);
    for (; over_ < entries_.size() && entries_[over_].given; ++over_) {
      const GroupCalls& given = *entries_[over_].given;
      if (completed.of_group[given.last] < given.of_group[given.last]) break;
      recorder_.over(entries_[over_].record, false);
    }
    for (; over_ > kept; --over_) entries_.pop_front();
  }

  /// The number of calls that were incomplete at the last update.
  [[nodiscard]] std::size_t open() const {
    const std::lock_guard lock(mutex_);
    return entries_.size() - over_;
  }

  /// The call that `failure` belongs to; the oldest incomplete call if the failure names none. Its sequence
  /// is 0 if there is no such call, or its record is gone.
  [[nodiscard]] collectives::CallId called(const GroupFailure& failure) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
      return !entry.given || entry.given->of_group[failure.group] >= failure.call;
    });
    const bool is_known =
        found != entries_.end() && (found != entries_.begin() || found->called.sequence == 1);
    if (failure.call != 0) return is_known ? found->called : collectives::CallId{};
    return over_ < entries_.size() ? entries_[over_].called : collectives::CallId{};
  }

 private:
  struct Entry {
    collectives::CallId called;
    std::uint64_t record;
    std::optional<GroupCalls> given;  // the executor's counts after this call; empty while it is being queued
  };
  static constexpr std::size_t kept = 256;  // completed entries

  collectives::FlightRecorder& recorder_;
  std::uint16_t communicator_ = 0;
  DeviceExecutor& executor_;
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::deque<Entry> entries_;
  std::size_t over_ = 0;  // the first `over_` entries are complete
};

}  // namespace ddl::device
