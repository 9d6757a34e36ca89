#include "ddl/gradients/step_ledger.hpp"

#include <algorithm>

namespace ddl {

bool StepLedger::report(std::size_t index, bool has_value) {
  if (reports_[index] != none) return false;
  reports_[index] = has_value ? value : absent;
  ++reported_;
  if (has_value) {
    has_value_[index] = 1;
    order_.push_back(index);
  }
  return true;
}

std::optional<std::size_t> StepLedger::missing() const noexcept {
  const auto found = std::ranges::find(reports_, none);
  if (found == reports_.end()) return {};
  return static_cast<std::size_t>(found - reports_.begin());
}

std::size_t StepLedger::without_value() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(has_value_, 0));
}

void StepLedger::next_micro_batch() noexcept {
  std::ranges::fill(reports_, none);
  order_.clear();
  reported_ = 0;
}

void StepLedger::next_step() noexcept {
  next_micro_batch();
  std::ranges::fill(has_value_, std::uint8_t{0});
}

}  // namespace ddl
