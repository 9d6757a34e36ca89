#pragma once

#include <string>

#include "nmt_example/model/shape.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

enum class Side : std::uint8_t { encoder, decoder };

/// The name of a side's table.
inline std::string embedding_name(const ModelShape& shape, Side side) {
  if (shape.share_vocabulary) return "embedding/shared";
  return side == Side::encoder ? "embedding/encoder" : "embedding/decoder";
}

/// A side's table of embedded words, which may be the other side's too.
class Embedding {
 public:
  /// Rows of a given table that are trained all the same: those of special words.
  static constexpr std::int64_t trained_rows = 3;

  Embedding(ParameterLayout& layout, const ModelShape& shape, Side side)
      : table_(layout.declare(embedding_name(shape, side),
                              side == Side::encoder ? shape.source_vocabulary : shape.target_vocabulary,
                              side == Side::encoder ? shape.source_embedding : shape.target_embedding)),
        given_(side == Side::encoder ? shape.source_given : shape.target_given) {
    if (given_) layout.parameters[table_].decays = false;
  }

  [[nodiscard]] std::size_t table() const noexcept { return table_; }
  void forward(const StepContext& step, const Indices& ids, const Tensor& out) const {
    step.backend.embedding_forward(step.value(table_), ids, out);
  }
  void backward(const StepContext& step, const Tensor& d_out, const Indices& ids) const {
    const Tensor gradient = step.gradient(table_);
    step.backend.embedding_backward(d_out, ids, gradient);
    if (given_) step.backend.zero(gradient.row_range(trained_rows, gradient.rows - trained_rows));
    step.added_gradient(table_);
  }

 private:
  std::size_t table_;
  bool given_;
};

}  // namespace nmt
