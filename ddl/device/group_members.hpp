#pragma once

#include <optional>
#include <vector>

#include "ddl/context.hpp"

namespace ddl::device {

/// The ranks that do something together on their devices: all of a context's, or those of a dimension of its
/// plans.
class GroupMembers {
 public:
  /// All ranks.
  explicit GroupMembers(Context& context);
  /// The ranks with this one's `color`, in their order. Collective among all ranks.
  GroupMembers(Context& context, int color);
  GroupMembers(const GroupMembers&) = delete;
  GroupMembers& operator=(const GroupMembers&) = delete;

  /// Of all ranks; what it agrees on, all members of all groups agree on.
  [[nodiscard]] Context& context() const noexcept { return context_; }
  [[nodiscard]] Communicator& communicator() noexcept { return own_ ? *own_ : context_.communicator(); }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// The context's rank of each member.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  Context& context_;
  std::optional<Communicator> own_;
  std::vector<int> ranks_;
  int rank_ = 0;
};

}  // namespace ddl::device
