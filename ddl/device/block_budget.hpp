#pragma once

#include <cstdint>

namespace ddl::device {

/// Blocks of a device that kernels which wait for other ranks may take, counted over all communicators of
/// this process: if more of them waited than fit on the device, those that they wait for could not start.
/// A half is for the exchange; the other one is for holds (see UcxPath), a kernel of a block for each rank,
/// and for what they wait for.
class BlockBudget {
 public:
  enum class Half : std::uint8_t { exchange, holds };

  explicit BlockBudget(Half half) : half_(half) {}
  BlockBudget(const BlockBudget&) = delete;
  BlockBudget& operator=(const BlockBudget&) = delete;
  ~BlockBudget();

  /// What has been taken of the device's half. Any thread.
  [[nodiscard]] std::int64_t taken(int device) const;
  /// Takes them, until this ends, if that leaves no more than `room` of the half taken; says whether it did.
  /// Once. Any thread.
  [[nodiscard]] bool take(int device, std::int64_t blocks, std::int64_t room);

 private:
  const Half half_;
  int device_ = -1;
  std::int64_t blocks_ = 0;
};

}  // namespace ddl::device
