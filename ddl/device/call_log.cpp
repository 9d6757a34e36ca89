#include "ddl/device/call_log.hpp"

#include <algorithm>

namespace ddl::device {

using collectives::CallId;

CallLog::CallLog(collectives::FlightRecorder& recorder, DeviceExecutor& executor)
    : recorder_(recorder), executor_(executor) {
  communicator_ = recorder_.add_on_devices([this] { update(); });
}

CallLog::~CallLog() { recorder_.remove_on_devices(communicator_); }

CallId CallLog::begin(const DeviceCall& call) {
  const std::lock_guard lock(mutex_);
  const CallId called{topology::to_string(call.collective),
                      communicator_,
                      ++sequence_,
                      call.count,
                      call.type,
                      call.op,
                      topology::has_root(call.collective) ? call.root : -1};
  entries_.push_back({called, recorder_.called(called), {}});
  recorder_.begun(entries_.back().record);
  return called;
}

void CallLog::queued() {
  const std::lock_guard lock(mutex_);
  entries_.back().given = executor_.given();
}

void CallLog::update() {
  const GroupCalls completed = executor_.completed();
  const std::lock_guard lock(mutex_);
  for (; over_ < entries_.size() && entries_[over_].given; ++over_) {
    const GroupCalls& given = *entries_[over_].given;
    if (completed.of_group[given.last] < given.of_group[given.last]) break;
    recorder_.over(entries_[over_].record, false);
  }
  for (; over_ > kept; --over_) entries_.pop_front();
}

std::size_t CallLog::open() const {
  const std::lock_guard lock(mutex_);
  return entries_.size() - over_;
}

CallId CallLog::called(const GroupFailure& failure) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return !entry.given || entry.given->of_group[failure.group] >= failure.call;
  });
  const bool is_known = found != entries_.end() && (found != entries_.begin() || found->called.sequence == 1);
  if (failure.call != 0 && is_known) return found->called;
  return over_ < entries_.size() ? entries_[over_].called : CallId{};
}

}  // namespace ddl::device
