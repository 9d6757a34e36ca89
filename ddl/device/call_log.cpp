#include "ddl/device/call_log.hpp"

#include <algorithm>
#include <utility>

namespace ddl::device {

using collectives::Called;

CallLog::CallLog(collectives::FlightRecorder& recorder, DevicePath& path) : recorder_(recorder), path_(path) {
  communicator_ = recorder_.add_on_devices([this] { update(); });
}

CallLog::~CallLog() { recorder_.remove_on_devices(communicator_); }

std::uint64_t CallLog::begin(const DeviceCall& call) {
  const std::lock_guard lock(mutex_);
  Entry entry{{topology::to_string(call.collective).data(), communicator_, ++sequence_, call.count, call.type,
               call.op, topology::has_root(call.collective) ? call.root : -1},
              sequence_,
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
  const std::uint64_t completed = path_.completed();
  for (std::size_t i = first_open_; i < entries_.size() && entries_[i].number <= completed; ++i) {
    Entry& entry = entries_[i];
    entry.is_over = true;
    --open_;
    recorder_.over(entry.record, false);
  }
  while (first_open_ < entries_.size() && entries_[first_open_].is_over) ++first_open_;
  for (; first_open_ > kept; --first_open_) entries_.pop_front();
}

std::size_t CallLog::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

Called CallLog::called(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto same = std::ranges::find(entries_, number, &Entry::number);
  if (number != 0 && same != entries_.end()) return same->called;
  return first_open_ < entries_.size() ? entries_[first_open_].called : Called{};
}

}  // namespace ddl::device
