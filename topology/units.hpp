#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::topology {

/// "717.7 MB", "1024 B": powers of 1000.
std::string format_bytes(double bytes);
/// "88.2 ms", "3.41 us": three digits.
std::string format_us(double microseconds);

/// "717,668,352".
std::string digits_text(std::uint64_t number);
/// "1 host", "2 hosts".
std::string count_text(std::uint64_t number, std::string_view noun);

/// Rows of cells, written with columns as wide as their widest cell.
class TextTable {
 public:
  /// Names of the columns; one that begins with '>' is aligned to the right.
  explicit TextTable(std::vector<std::string> header);

  void add(std::vector<std::string> row);
  /// Each line begins with two spaces, has no blanks at its end, and ends with a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ddl::topology
