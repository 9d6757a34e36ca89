#include "ddl/device/runtime/dimension_group.hpp"

#include <map>
#include <utility>

namespace ddl::device {

std::optional<GroupFailure> DimensionGroup::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void DimensionGroup::fail(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  failure_ = GroupFailure{error, completed() + 1};
}

GroupMembers::GroupMembers(const Context& context, Communicator communicator)
    : context_(context),
      communicator_(std::move(communicator)),
      ranks_(static_cast<std::size_t>(communicator_.size())) {
  const int own = context.rank();
  communicator_.all_gather(&own, ranks_.data(), 1, DataType::i32);
}

namespace {

struct Taken {
  std::mutex mutex;
  std::map<std::pair<BlockBudget::Half, int>, std::int64_t> of_device;
};

/// The blocks that the process has taken. Never destroyed, because communicators may outlive main.
Taken& all() {
  static Taken* const taken = new Taken;
  return *taken;
}

}  // namespace

std::int64_t BlockBudget::taken(int device) const {
  const std::lock_guard lock(all().mutex);
  return all().of_device[{half_, device}];
}

bool BlockBudget::take(int device, std::int64_t blocks, std::int64_t room) {
  const std::lock_guard lock(all().mutex);
  std::int64_t& taken = all().of_device[{half_, device}];
  if (taken + blocks > room) return false;
  taken += blocks;
  device_ = device;
  blocks_ = blocks;
  return true;
}

BlockBudget::~BlockBudget() {
  if (device_ < 0) return;
  const std::lock_guard lock(all().mutex);
  all().of_device[{half_, device_}] -= blocks_;
}

}  // namespace ddl::device
