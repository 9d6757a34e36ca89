#include "topology/text.hpp"

#include <fmt/format.h>
#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace ddl {

namespace {

/// Formats with `digits` significant digits, but never rounds before the decimal point.
std::string significant(double value, int digits) {
  const int before = value >= 1 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  return fmt::format("{:.{}f}", value, before >= digits ? 0 : digits - before);
}

}  // namespace

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000
template <>
std::from_chars_result read_number(const char* first, const char* last, double& number) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  // strtod also takes blanks, signs and hexadecimal digits, and needs an end.
  const std::string_view text(first, static_cast<std::size_t>(last - first));
  const std::string digits(text.substr(0, text.find_first_not_of("0123456789.-eE+")));
  if (digits.empty() || digits[0] == '+') return {first, std::errc::invalid_argument};
  char* end = nullptr;
  errno = 0;
  const double read = strtod_l(digits.c_str(), &end, plain);
  if (end == digits.c_str()) return {first, std::errc::invalid_argument};
  const char* const rest = first + (end - digits.c_str());
  if (errno == ERANGE) return {rest, std::errc::result_out_of_range};
  number = read;
  return {rest, std::errc{}};
}
#endif

std::string format_bytes(double bytes) {
  if (bytes < 9999.5) return fmt::format("{:.0f} B", bytes);
  for (const char* unit : {"kB", "MB", "GB"}) {
    bytes /= 1e3;
    if (bytes < 999.95) return fmt::format("{} {}", significant(bytes, 4), unit);
  }
  return fmt::format("{} TB", significant(bytes / 1e3, 4));
}

std::string format_us(double microseconds) {
  if (microseconds < 999.5) return significant(microseconds, 3) + " us";
  if (microseconds < 999.5e3) return significant(microseconds / 1e3, 3) + " ms";
  return significant(microseconds / 1e6, 3) + " s";
}

std::string digits_text(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t left = text.size(); left > 3;) text.insert(left -= 3, 1, ',');
  return text;
}

std::string count_text(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", digits_text(number), noun, number == 1 ? "" : "s");
}

TextTable::TextTable(std::vector<std::string> header) {
  for (std::string& name : header) {
    right_.push_back(name.starts_with('>'));
    if (right_.back()) name.erase(0, 1);
  }
  rows_.push_back(std::move(header));
}

void TextTable::add(std::vector<std::string> row) {
  row.resize(right_.size());
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
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

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  if (names.empty()) return {};
  // Bounds the cost; a longer name is no typing mistake.
  name = name.substr(0, 256);
  return *std::ranges::min_element(names, {}, [&](std::string_view n) { return edit_distance(name, n); });
}

}  // namespace ddl
