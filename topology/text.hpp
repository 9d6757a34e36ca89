#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ddl {

/// std::from_chars without formats. LLVM's standard library has it for floating-point numbers from version 20
/// on.
template <typename Number>
std::from_chars_result read_number(const char* first, const char* last, Number& number) {
  return std::from_chars(first, last, number);
}
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000
template <>
std::from_chars_result read_number(const char* first, const char* last, double& number);
#endif

/// The number that the whole text spells, with no character left over.
template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = read_number(text.data(), last, number);
  return error == std::errc{} && end == last ? std::optional(number) : std::nullopt;
}

/// The parts between separators: always one more than there are separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// "717.7 MB", "1024 B": units are powers of 1000.
std::string format_bytes(double bytes);
/// "88.2 ms", "3.41 us": three significant digits.
std::string format_us(double microseconds);

/// "717,668,352".
std::string digits_text(std::uint64_t number);
/// "1 host", "2 hosts".
std::string count_text(std::uint64_t number, std::string_view noun);

/// A table of text; each column is as wide as its widest cell.
class TextTable {
 public:
  /// Column names; one that begins with '>' is aligned to the right.
  explicit TextTable(std::vector<std::string> header);

  void add(std::vector<std::string> row);
  /// Lines begin with two spaces, have no trailing blanks, and end with a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

/// The one of `names` that needs the fewest insertions, deletions and replacements of characters to become
/// `name` (Levenshtein 1966), for messages about names that are unknown; the first of several; empty if
/// there are no names.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace ddl
