#include "ddl/device/group_members.hpp"

#include <numeric>

namespace ddl::device {

GroupMembers::GroupMembers(Context& context)
    : context_(context), ranks_(static_cast<std::size_t>(context.size())), rank_(context.rank()) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

GroupMembers::GroupMembers(Context& context, int color)
    : context_(context),
      own_(context.communicator().split(color)),
      ranks_(static_cast<std::size_t>(own_->size())),
      rank_(own_->rank()) {
  const int own = context.rank();
  own_->all_gather(&own, ranks_.data(), 1, DataType::i32);
}

}  // namespace ddl::device
