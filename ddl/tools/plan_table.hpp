#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddl::tools {

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
