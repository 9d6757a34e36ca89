#pragma once

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
  CallLog(collectives::FlightRecorder& recorder, DeviceExecutor& executor);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog();

  /// Records a call that is about to be queued.
  collectives::CallId begin(const DeviceCall& call);
  /// Records that the executor has queued the last call. Only for the thread that makes the calls.
  void queued();
  /// Records which calls have completed. Must be called regularly.
  void update();
  /// The number of calls that were incomplete at the last update.
  [[nodiscard]] std::size_t open() const;
  /// The call that `failure` belongs to; the oldest incomplete call if the failure names none or its record
  /// is gone. Its sequence is 0 if there is no such call.
  [[nodiscard]] collectives::CallId called(const GroupFailure& failure) const;

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
