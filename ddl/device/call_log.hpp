#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/watch/flight_recorder.hpp"
#include "ddl/device/device_path.hpp"

namespace ddl::device {

/// A device communicator's calls in the rank's flight recorder, and which of them are over: nobody waits for
/// that, so it is looked up when the records are read. Any thread.
class CallLog {
 public:
  /// Both outlive it. `paths`: what `begin` may name.
  CallLog(collectives::FlightRecorder& recorder, const std::vector<DevicePath*>& paths);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog();

  /// A call that is about to be queued on `path`; returns its number among the path's, from 1 on.
  std::uint64_t begin(const DeviceCall& call, const DevicePath& path);
  /// Notes what is over. To be called now and then.
  void update();
  /// How many calls were not over at the last update.
  [[nodiscard]] std::size_t open() const;
  /// Of call `number` of a path; the oldest that is not over if it is 0, or not known any more. Sequence 0:
  /// there is none.
  [[nodiscard]] collectives::Called called(const DevicePath* path, std::uint64_t number) const;

 private:
  struct Entry {
    collectives::Called called;
    const DevicePath* path;
    std::uint64_t number;  // among the path's calls
    std::uint64_t record;
    bool is_over;
  };
  struct Path {
    DevicePath* path;
    std::uint64_t calls = 0;
  };
  static constexpr std::size_t kept = 256;  // of those that are over

  collectives::FlightRecorder& recorder_;
  std::uint16_t communicator_ = 0;
  std::vector<Path> paths_;
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::deque<Entry> entries_;
  std::size_t first_open_ = 0;
  std::size_t open_ = 0;
};

}  // namespace ddl::device
