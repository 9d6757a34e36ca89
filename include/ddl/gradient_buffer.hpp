#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {

/// A gradient that is to get memory.
struct GradientShape {
  std::string name;
  std::size_t count = 0;      ///< Elements.
  std::size_t row_width = 0;  ///< As `Gradient`'s.
};

/// Memory for gradients, one after the other in one block that the ranks of a host share: a `GradientReducer`
/// of its `gradients()` reduces them where they are, without copies. Zeros at first. Movable.
/// Errors: those of `allocate`.
class GradientBuffer {
 public:
  GradientBuffer(const Context& context, const std::vector<GradientShape>& shapes) {
    std::size_t total = 0;
    for (const GradientShape& shape : shapes) total += shape.count;
    memory_ = allocate<float>(context, total);
    std::size_t at = 0;
    for (const GradientShape& shape : shapes) {
      gradients_.push_back({shape.name, memory_.span().subspan(at, shape.count), shape.row_width});
      at += shape.count;
    }
  }

  /// Views, valid while this lives.
  [[nodiscard]] const std::vector<Gradient>& gradients() const noexcept { return gradients_; }
  [[nodiscard]] std::span<float> operator[](std::size_t index) const {
    return gradients_.at(index).values.as<float>();
  }
  /// All of them.
  [[nodiscard]] std::span<float> values() const noexcept { return memory_.span(); }

 private:
  SharedBuffer<float> memory_;
  std::vector<Gradient> gradients_;
};

}  // namespace ddl
