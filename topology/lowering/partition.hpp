#pragma once

#include <algorithm>
#include <cstddef>

namespace ddl::topology {

struct Range {
  std::size_t begin;
  std::size_t end;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool empty() const noexcept { return begin == end; }
};

/// Cuts `whole` into `parts` pieces whose sizes differ by at most one, the longer ones first.
class Partition {
 public:
  Partition(Range whole, int parts)
      : origin_(whole.begin),
        parts_(static_cast<std::size_t>(parts)),
        base_(whole.size() / parts_),
        longer_(whole.size() % parts_) {}

  /// Where piece `index` starts; `index` may be the number of parts.
  [[nodiscard]] std::size_t boundary(int index) const {
    const auto i = static_cast<std::size_t>(index);
    return origin_ + base_ * i + std::min(i, longer_);
  }
  [[nodiscard]] Range piece(int index) const { return {boundary(index), boundary(index + 1)}; }
  /// Pieces `first` to `last`, without the last one.
  [[nodiscard]] Range pieces(int first, int last) const { return {boundary(first), boundary(last)}; }
  /// The piece that holds `element`, which must be inside the whole.
  [[nodiscard]] int piece_of(std::size_t element) const {
    const std::size_t offset = element - origin_;
    const std::size_t in_longer = longer_ * (base_ + 1);
    const std::size_t index =
        offset < in_longer ? offset / (base_ + 1) : longer_ + (offset - in_longer) / base_;
    return static_cast<int>(index);
  }

 private:
  std::size_t origin_;
  std::size_t parts_;
  std::size_t base_;
  std::size_t longer_;
};

}  // namespace ddl::topology
