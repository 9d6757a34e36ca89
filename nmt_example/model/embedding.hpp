#pragma once

#include "nmt_example/model/shape.hpp"
#include "nmt_example/model/step_context.hpp"

namespace nmt {

/// A side's table of embedded words, which may be the other side's too.
class Embedding {
 public:
  /// `side`: encoder or decoder.
  Embedding(ParameterLayout& layout, const ModelShape& shape, const std::string& side,
            std::int64_t vocabulary)
      : table_(layout.declare(shape.share_vocabulary ? "embedding/shared" : "embedding/" + side, vocabulary,
                              shape.embedding)) {}

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
