#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nmt {

enum class LengthUnit : std::uint8_t { steps, epochs, seconds, words };

/// How long training is, or a part of it, as a flag says it. Epochs become steps once the data is known; time
/// and words end a training whose number of steps is not known before.
class Length {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a number alone is one of steps.
  Length(std::int64_t steps = 0) noexcept : amount_(static_cast<double>(steps)), steps_(steps) {}

  /// From `12000`, `12000u` or `12ku` (updates, which are steps), `5e` or `0.5e` (epochs), `2h`, `30m`,
  /// `90s`, `50Mw` or `500kw` (words of the target text, each sentence's end included). Nothing for other
  /// text.
  static std::optional<Length> parse(std::string_view text);
  /// The shortest text that `parse` reads as this.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] LengthUnit unit() const noexcept { return unit_; }
  /// In the unit.
  [[nodiscard]] double amount() const noexcept { return amount_; }
  /// False for epochs that `set_steps` has not turned into steps.
  [[nodiscard]] bool is_known() const noexcept { return steps_ >= 0 || unit_ == LengthUnit::steps; }
  /// Keeps unit and amount.
  void set_steps(std::int64_t steps) noexcept { steps_ = steps; }
  /// The number of steps; the largest there is for time and words. Throws `std::logic_error` unless
  /// `is_known`.
  // NOLINTNEXTLINE(google-explicit-constructor): most of what reads a length counts steps.
  operator std::int64_t() const;

 private:
  Length(double amount, LengthUnit unit) noexcept;

  LengthUnit unit_ = LengthUnit::steps;
  double amount_;
  std::int64_t steps_;
};

}  // namespace nmt
