#include "ddl/device/call_log.hpp"

#include <algorithm>
#include <utility>

namespace ddl::device {

using collectives::Called;

CallLog::CallLog(collectives::FlightRecorder& recorder, const std::vector<DevicePath*>& paths)
    : recorder_(recorder) {
  // Paths that were timed have made calls of their own.
  for (DevicePath* const path : paths) paths_.push_back({path, path->completed()});
  communicator_ = recorder_.add_on_devices([this] { update(); });
}

CallLog::~CallLog() { recorder_.remove_on_devices(communicator_); }

std::uint64_t CallLog::begin(const DeviceCall& call, const DevicePath& path) {
  const std::lock_guard lock(mutex_);
  const auto used = std::ranges::find(paths_, &path, &Path::path);
  Entry entry{{topology::to_string(call.collective).data(), communicator_, ++sequence_, call.count, call.type,
               call.op, topology::has_root(call.collective) ? call.root : -1},
              &path,
              ++used->calls,
              0,
              false};
  entry.record = recorder_.called(entry.called);
  recorder_.begun(entry.record);
  entries_.push_back(entry);
  ++open_;
  return entry.number;
}

void CallLog::update() {
  const std::lock_guard lock(mutex_);
  for (const Path& path : paths_) {
    const std::uint64_t completed = path.path->completed();
    for (std::size_t i = first_open_; i < entries_.size(); ++i) {
      Entry& entry = entries_[i];
      if (entry.is_over || entry.path != path.path || entry.number > completed) continue;
      entry.is_over = true;
      --open_;
      recorder_.over(entry.record, false);
    }
  }
  while (first_open_ < entries_.size() && entries_[first_open_].is_over) ++first_open_;
  for (; first_open_ > kept; --first_open_) entries_.pop_front();
}

std::size_t CallLog::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

Called CallLog::called(const DevicePath* path, std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto same = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.path == path && entry.number == number; });
  if (number != 0 && same != entries_.end()) return same->called;
  return first_open_ < entries_.size() ? entries_[first_open_].called : Called{};
}

}  // namespace ddl::device
