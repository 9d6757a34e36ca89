#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "collectives/watch/flight_recorder.hpp"
#include "ddl/device/runtime/device_path.hpp"

namespace ddl::device {

/// A device communicator's calls in the rank's flight recorder, and which of them are over: nobody waits for
/// that, so it is looked up when the records are read. Any thread.
class CallLog {
 public:
  /// Both outlive it. `path` does the calls, and has made none.
  CallLog(collectives::FlightRecorder& recorder, DevicePath& path);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog();

  /// A call that is about to be queued; returns its number, from 1 on.
  std::uint64_t begin(const DeviceCall& call);
  /// Notes what is over. To be called now and then.
  void update();
  /// How many calls were not over at the last update.
  [[nodiscard]] std::size_t open() const;
  /// Of call `number`; the oldest that is not over if it is 0, or not known any more. Sequence 0: there is
  /// none.
  [[nodiscard]] collectives::Called called(std::uint64_t number) const;

 private:
  struct Entry {
    collectives::Called called;
    std::uint64_t number;
    std::uint64_t record;
    bool is_over;
  };
  static constexpr std::size_t kept = 256;  // of those that are over

  collectives::FlightRecorder& recorder_;
  std::uint16_t communicator_ = 0;
  DevicePath& path_;
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::deque<Entry> entries_;
  std::size_t first_open_ = 0;
  std::size_t open_ = 0;
};

}  // namespace ddl::device
