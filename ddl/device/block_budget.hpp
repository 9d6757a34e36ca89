#pragma once

#include <cstdint>

namespace ddl::device {

/// Blocks of a device that kernels which wait for other ranks may take, counted over all communicators of
/// this process: if more of them waited than fit on the device, those that they wait for could not start.
class BlockBudget {
 public:
  BlockBudget() = default;
  BlockBudget(const BlockBudget&) = delete;
  BlockBudget& operator=(const BlockBudget&) = delete;
  ~BlockBudget();

  /// What others have taken of the device. Any thread.
  [[nodiscard]] static std::int64_t taken(int device);
  /// Takes them, until this ends, if that leaves no more than `room` taken; says whether it did. Once. Any
  /// thread.
  [[nodiscard]] bool take(int device, std::int64_t blocks, std::int64_t room);

 private:
  int device_ = -1;
  std::int64_t blocks_ = 0;
};

}  // namespace ddl::device
