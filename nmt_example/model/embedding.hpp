#pragma once

#include <string>

#include "nmt_example/model/shape.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

/// The name of a side's table; `side`: encoder or decoder.
inline std::string embedding_name(const ModelShape& shape, const std::string& side) {
  return shape.share_vocabulary ? "embedding/shared" : "embedding/" + side;
}

/// A side's table of embedded words, which may be the other side's too.
class Embedding {
 public:
  Embedding(ParameterLayout& layout, const ModelShape& shape, const std::string& side,
            std::int64_t vocabulary)
      : table_(layout.declare(embedding_name(shape, side), vocabulary, shape.embedding)) {}

  void forward(const StepContext& step, const Indices& ids, const Tensor& out) const {
    step.backend.embedding_forward(step.value(table_), ids, out);
  }
  void backward(const StepContext& step, const Tensor& d_out, const Indices& ids) const {
    step.backend.embedding_backward(d_out, ids, step.gradient(table_));
    step.added_gradient(table_);
  }

 private:
  std::size_t table_;
};

}  // namespace nmt
