#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddl {

/// A viewer shows the slices of a row right only where they follow one another or nest. Slices that overlap
/// are spread over several rows: each goes to the first that has room for it. They come by their begin, and
/// of those that begin together the longest first.
class Rows {
 public:
  /// `nest`: whether a slice may lie inside of another one of its row.
  explicit Rows(bool nest) : nest_(nest) {}

  std::size_t row_for(std::int64_t begin, std::int64_t end) {
    for (std::size_t i = 0; i < open_.size(); ++i) {
      std::vector<std::int64_t>& ends = open_[i];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && !(nest_ && end <= ends.back())) continue;
      ends.push_back(end);
      return i;
    }
    open_.push_back({end});
    return open_.size() - 1;
  }
  [[nodiscard]] std::size_t size() const noexcept { return open_.size(); }

 private:
  bool nest_;
  std::vector<std::vector<std::int64_t>> open_;  // by row: ends of slices that are open, the innermost last
};

}  // namespace ddl
