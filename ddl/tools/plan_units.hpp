#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::tools {

template <typename Integer>
constexpr std::size_t as_index(Integer i) {
  return static_cast<std::size_t>(i);
}

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
