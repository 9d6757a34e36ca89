#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {

/// A gradient to allocate in a `GradientBuffer`.
struct GradientShape {
  std::string name;           ///< `Gradient::name`.
  std::size_t count = 0;      ///< Number of elements, f32.
  std::size_t row_width = 0;  ///< `Gradient::row_width`.
};

/// Memory for f32 gradients, adjacent in one block that the ranks of a host share: a `GradientReducer` of
/// `gradients()` reduces them in place, without copies. Movable; moving keeps the memory in place.
class GradientBuffer {
 public:
  /// Allocates zeroed memory for `shapes`, in this order. Not collective. Throws as `allocate` does.
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

  /// The gradients, for a reducer. Their memory is valid while this buffer exists.
  [[nodiscard]] const std::vector<Gradient>& gradients() const noexcept { return gradients_; }
  /// The elements of gradient `index`. Throws std::out_of_range for an unknown index.
  [[nodiscard]] std::span<float> operator[](std::size_t index) const {
    return gradients_.at(index).values.as<float>();
  }
  /// The elements of all gradients.
  [[nodiscard]] std::span<float> values() const noexcept { return memory_.span(); }

 private:
  SharedBuffer<float> memory_;
  std::vector<Gradient> gradients_;
};

}  // namespace ddl
