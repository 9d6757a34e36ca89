#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "collectives/watch/flight_recorder.hpp"
#include "ddl/device/device_executor.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// A device communicator's calls in the rank's flight recorder, and which of them are over: nobody waits for
/// that, so it is looked up when the records are read. Any thread.
class CallLog {
 public:
  /// Both outlive it. `executor` does the calls, and has made none.
  CallLog(collectives::FlightRecorder& recorder, DeviceExecutor& executor);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog();

  /// A call that is about to be queued.
  collectives::CallId begin(const DeviceCall& call);
  /// The executor has queued it. For the thread that makes the calls.
  void queued();
  /// Notes what is over. To be called now and then.
  void update();
  /// How many calls were not over at the last update.
  [[nodiscard]] std::size_t open() const;
  /// The call that a failure is about; if that is of none, or not known any more, the oldest that is not
  /// over. Sequence 0: there is none.
  [[nodiscard]] collectives::CallId called(const GroupFailure& failure) const;

 private:
  struct Entry {
    collectives::CallId called;
    std::uint64_t record;
    std::optional<GroupCalls> given;  // up to its end; none: it is being queued
  };
  static constexpr std::size_t kept = 256;  // of those that are over

  collectives::FlightRecorder& recorder_;
  std::uint16_t communicator_ = 0;
  DeviceExecutor& executor_;
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::deque<Entry> entries_;
  std::size_t over_ = 0;  // entries, the first ones
};

}  // namespace ddl::device
