#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::topology {

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

}  // namespace ddl::topology
