#include "ddl/gradient_buffer.hpp"

namespace ddl {

GradientBuffer::GradientBuffer(Context& context, const std::vector<GradientShape>& shapes) {
  std::size_t total = 0;
  for (const GradientShape& shape : shapes) total += shape.count;
  memory_ = allocate<float>(context, total);
  std::size_t at = 0;
  for (const GradientShape& shape : shapes) {
    gradients_.push_back({shape.name, memory_.span().subspan(at, shape.count), shape.row_width});
    at += shape.count;
  }
}

}  // namespace ddl
