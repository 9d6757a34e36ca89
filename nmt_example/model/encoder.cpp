#include "nmt_example/model/encoder.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace nmt {
namespace {

/// Layers that each read the output of the one below.
struct Stack {
  std::vector<RnnLayer> layers;

  Stack(ParameterLayout& layout, const ModelShape& shape, const std::string& name, int number, int count) {
    for (int l = 0; l < count; ++l) {
      const std::int64_t inputs = l == 0 ? shape.embedding : shape.units;
      layers.emplace_back(make_cell(layout, fmt::format("{}_{}", name, l), inputs, shape),
                          RnnLayerSettings{{inputs}, number == 1, false, encoder_dropout_site(number, l)});
    }
  }
  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training, const Tensor& output) {
    for (RnnLayer& layer : layers) {
      const bool top = &layer == &layers.back();
      layer.plan(arena, sentences, steps, 1, training,
                 top ? output : arena.take(steps * sentences, layer.units()));
    }
  }
  void forward(const StepContext& step, Tensor input, const Indices& lengths) {
    for (RnnLayer& layer : layers) {
      layer.forward(step, std::array{input}, lengths, {});
      input = layer.output();
    }
  }
};

/// Stacks that read the words independently, one of them backwards, and whose tops are concatenated; or one
/// stack. tensorflow/nmt's `uni` and `bi`.
class StackedEncoder final : public Encoder {
 public:
  StackedEncoder(ParameterLayout& layout, const ModelShape& shape)
      : embedding_(layout, shape, "encoder", shape.source_vocabulary),
        embedded_columns_(shape.embedding),
        units_(shape.units) {
    if (shape.bidirectional) {
      for (const int s : {0, 1}) {
        stacks_.emplace_back(layout, shape, s == 0 ? "encoder/fw/lstm" : "encoder/bw/lstm", s,
                             shape.encoder_layers / 2);
      }
    } else {
      stacks_.emplace_back(layout, shape, "encoder/lstm", 0, shape.encoder_layers);
    }
  }

  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training) override {
    const std::int64_t rows = sentences * steps;
    embedded_ = arena.take(rows, embedded_columns_);
    result_.memory = arena.take(rows, depth());
    for (std::size_t s = 0; s < stacks_.size(); ++s) {
      stacks_[s].plan(arena, sentences, steps, training, of_stack(result_.memory, s));
    }
    result_.states.clear();
    for (std::size_t l = 0; l < stacks_.front().layers.size(); ++l) {
      for (const Stack& stack : stacks_) result_.states.push_back(stack.layers[l].final_state());
    }
    if (!training) return;
    result_.d_memory = arena.take(rows, depth());
    d_embedded_ = arena.take(rows, embedded_columns_);
    d_second_ = arena.take(rows, embedded_columns_);
    d_between_ = arena.take(rows, units_);
    result_.d_states = result_.states;
    for (RnnState& state : result_.d_states) {
      for (Tensor* tensor : {&state.h, &state.c}) {
        if (!tensor->empty()) *tensor = arena.take(sentences, units_);
      }
    }
  }

  void forward(const StepContext& step, const Indices& ids, const Indices& lengths) override {
    result_.lengths = lengths;
    embedding_.forward(step, ids, embedded_);
    for (Stack& stack : stacks_) stack.forward(step, embedded_, lengths);
  }

  void backward(const StepContext& step, const Indices& ids) override {
    for (std::size_t s = stacks_.size(); s-- > 0;) {
      const bool first = s + 1 == stacks_.size();
      Tensor d_output = of_stack(result_.d_memory, s);
      for (std::size_t l = stacks_[s].layers.size(); l-- > 0;) {
        const Tensor d_input = l > 0 ? d_between_ : first ? d_embedded_ : d_second_;
        stacks_[s].layers[l].backward(step, d_output, result_.d_states[l * stacks_.size() + s], d_input);
        d_output = d_input;
      }
      if (!first) step.backend.add(d_second_, d_embedded_);
    }
    embedding_.backward(step, d_embedded_, ids);
  }

  [[nodiscard]] std::int64_t depth() const override {
    return units_ * static_cast<std::int64_t>(stacks_.size());
  }

 private:
  [[nodiscard]] Tensor of_stack(const Tensor& memory, std::size_t s) const {
    return memory.col_range(static_cast<std::int64_t>(s) * units_, units_);
  }

  Embedding embedding_;
  std::int64_t embedded_columns_, units_;
  std::vector<Stack> stacks_;
  Tensor embedded_, d_embedded_, d_second_, d_between_;
};

}  // namespace

std::unique_ptr<Encoder> make_encoder(ParameterLayout& layout, const ModelShape& shape) {
  return std::make_unique<StackedEncoder>(layout, shape);
}

}  // namespace nmt
