#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ddl {

/// Which gradients have been reported in a step, and in which order. A step is one micro-batch or several.
class StepLedger {
 public:
  explicit StepLedger(std::size_t gradients) : reports_(gradients), has_value_(gradients) {
    order_.reserve(gradients);
  }

  /// False if it was reported before in this micro-batch; nothing is changed then.
  [[nodiscard]] bool report(std::size_t index, bool has_value);
  [[nodiscard]] bool is_complete() const noexcept { return reported_ == reports_.size(); }
  [[nodiscard]] bool is_reported(std::size_t index) const noexcept { return reports_[index] != none; }
  /// The first that was not reported.
  [[nodiscard]] std::optional<std::size_t> missing() const noexcept;
  /// Those with values, as they became ready in this micro-batch.
  [[nodiscard]] std::span<const std::size_t> order() const noexcept { return order_; }
  /// Whether it has a value in this micro-batch, or in any of this step.
  [[nodiscard]] bool has_value_now(std::size_t index) const noexcept { return reports_[index] == value; }
  [[nodiscard]] bool has_value(std::size_t index) const noexcept { return has_value_[index] != 0; }
  /// How many have none in any micro-batch so far.
  [[nodiscard]] std::size_t without_value() const noexcept;

  void next_micro_batch() noexcept;
  void next_step() noexcept;

 private:
  enum Report : std::uint8_t { none, value, absent };

  std::vector<std::uint8_t> reports_;    // of this micro-batch
  std::vector<std::uint8_t> has_value_;  // in this step
  std::vector<std::size_t> order_;
  std::size_t reported_ = 0;
};

}  // namespace ddl
