#include "nmt_example/options/length.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace nmt {
namespace {

struct Suffix {
  std::string_view text;
  LengthUnit unit;
  double factor;
};

/// Of each unit, from the largest to the smallest.
constexpr Suffix suffixes[] = {
    {"Mu", LengthUnit::steps, 1e6}, {"ku", LengthUnit::steps, 1e3},   {"u", LengthUnit::steps, 1},
    {"e", LengthUnit::epochs, 1},   {"h", LengthUnit::seconds, 3600}, {"m", LengthUnit::seconds, 60},
    {"s", LengthUnit::seconds, 1},  {"Gw", LengthUnit::words, 1e9},   {"Mw", LengthUnit::words, 1e6},
    {"kw", LengthUnit::words, 1e3}, {"w", LengthUnit::words, 1},
};

constexpr double most = 1e15;  // below it, all whole numbers are exact

}  // namespace

Length::Length(double amount, LengthUnit unit) noexcept
    : unit_(unit),
      amount_(amount),
      steps_(unit == LengthUnit::epochs ? -1 : std::numeric_limits<std::int64_t>::max()) {}

std::optional<Length> Length::parse(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::int64_t steps = 0;
  if (const auto [rest, error] = std::from_chars(text.data(), end, steps);
      error == std::errc() && rest == end)
    return Length(steps);
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return {};
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const Suffix& suffix : suffixes) {
    if (unit != suffix.text) continue;
    const double amount = number * suffix.factor;
    if (!(std::abs(amount) < most)) return {};
    if (suffix.unit != LengthUnit::steps) return Length(amount, suffix.unit);
    if (amount != std::round(amount)) return {};
    return Length(static_cast<std::int64_t>(amount));
  }
  return {};
}

std::string Length::text() const {
  if (unit_ == LengthUnit::steps) return fmt::format("{}", steps_);
  for (const Suffix& suffix : suffixes) {
    if (suffix.unit != unit_) continue;
    const double number = amount_ / suffix.factor;
    const bool is_whole = number >= 1 && number == std::round(number);
    if (is_whole) return fmt::format("{:.0f}{}", number, suffix.text);
    if (suffix.factor == 1) {
      // Not as 1e-05e, which `parse` would not read.
      std::array<char, 400> digits;
      const auto end =
          std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed).ptr;
      return fmt::format("{}{}", std::string_view(digits.data(), end), suffix.text);
    }
  }
  return "";
}

Length::operator std::int64_t() const {
  if (is_known()) return steps_;
  throw std::logic_error(fmt::format("the steps of {} are not known yet", text()));
}

}  // namespace nmt
