#include "ddl/tools/plan_units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "ddl/tools/command_line.hpp"

namespace ddl::tools {

std::uint64_t parse_bytes(std::string_view flag, std::string_view text) {
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  std::uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view suffix(end, static_cast<std::size_t>(last - end));
  std::uint64_t unit = 0;
  if (suffix.empty()) unit = 1;
  if (suffix == "K" || suffix == "k") unit = std::uint64_t{1} << 10;
  if (suffix == "M" || suffix == "m") unit = std::uint64_t{1} << 20;
  if (suffix == "G" || suffix == "g") unit = std::uint64_t{1} << 30;
  if (error != std::errc{} || unit == 0 || number == 0 || number > most / unit) {
    throw UsageError(
        fmt::format("{}: found '{}', expected a whole number of bytes from 1 to 1024G, as in 717668352, or "
                    "with K, M or G for powers of 1024, as in 64K, 25M or 1G",
                    flag, text));
  }
  return number * unit;
}

double parse_number(std::string_view flag, std::string_view text, double least, double most) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const bool in_range = number >= least && number <= most;  // false for NaN
  if (error != std::errc{} || end != last || !in_range) {
    throw UsageError(fmt::format("{}: found '{}', expected a number from {} to {}", flag, text, least, most));
  }
  return number;
}

std::string digits_text(std::uint64_t number) {
  std::string text;
  const std::string digits = std::to_string(number);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string count_text(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", digits_text(number), noun, number == 1 ? "" : "s");
}

PlanTable::PlanTable(std::vector<std::string> header) {
  for (std::string& name : header) {
    right_.push_back(name.starts_with('>'));
    if (right_.back()) name.erase(0, 1);
  }
  rows_.push_back(std::move(header));
}

void PlanTable::add(std::vector<std::string> row) {
  row.resize(right_.size());
  rows_.push_back(std::move(row));
}

std::string PlanTable::text() const {
  std::vector<std::size_t> widths(right_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += "  ";
      line += right_[i] ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace ddl::tools
