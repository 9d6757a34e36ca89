#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::tools {

/// "65536", "64K", "25M" or "1G" (powers of 1024, as in nccl-tests), from 1 byte to 1024G. Throws UsageError
/// that begins with `flag`.
std::uint64_t parse_bytes(std::string_view flag, std::string_view text);

/// A number from `least` to `most`. Throws UsageError that begins with `flag`.
double parse_number(std::string_view flag, std::string_view text, double least, double most);

/// "717,668,352".
std::string digits_text(std::uint64_t number);
/// "1 host", "2 hosts".
std::string count_text(std::uint64_t number, std::string_view noun);

/// Rows of cells, written with columns as wide as their widest cell.
class PlanTable {
 public:
  /// Names of the columns; one that begins with '>' is aligned to the right.
  explicit PlanTable(std::vector<std::string> header);

  void add(std::vector<std::string> row);
  /// Each line begins with two spaces, has no blanks at its end, and ends with a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ddl::tools
