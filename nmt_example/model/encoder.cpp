#include "nmt_example/model/encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "nmt_example/model/rnn_stack.hpp"

namespace nmt {
namespace {

/// Layers that each read the output of the one below.
struct Stack {
  std::size_t number;  // of the layout
  std::vector<RnnLayer> layers;

  /// `side`: 1 reads backwards. The layers are named and counted from `first`; of them, the upper `residual`
  /// are residual.
  Stack(ParameterLayout& layout, const ModelShape& shape, const std::string& name, int side, int first,
        int count, std::int64_t inputs, int residual)
      : number(layout.declare_layer()) {
    for (int l = 0; l < count; ++l) {
      const std::int64_t columns = l == 0 ? inputs : shape.units;
      layers.emplace_back(
          make_cell(layout, fmt::format("encoder/{}{}_{}", name, name_of(shape.unit), first + l), columns,
                    shape),
          RnnLayerSettings{{columns},
                           side == 1,
                           l >= count - residual,
                           layout.declare_dropout(encoder_dropout_site(side, first + l)),
                           layout.declare_layer()});
    }
  }
  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training, const Tensor& output) {
    for (RnnLayer& layer : layers) {
      const bool top = &layer == &layers.back();
      layer.plan(arena, sentences, steps, 1, training,
                 top ? output : arena.take(steps * sentences, layer.units()));
    }
  }
  void forward(const StepContext& step, const Tensor& input, const Indices& lengths) {
    forward_stack(step, number, layers, [&](std::size_t l) {
      return RnnInput{.parts = {l == 0 ? input : layers[l - 1].output()}, .lengths = lengths};
    });
  }
};

/// One stack that reads the words; or two, independent of each other, one of them backwards, and whose tops
/// are concatenated (tensorflow/nmt's `uni` and `bi`). With `gnmt` two such layers, and a stack that reads
/// them.
class StackedEncoder final : public Encoder {
 public:
  StackedEncoder(ParameterLayout& layout, const ModelShape& shape)
      : type_(shape.encoder),
        readers_(shape.encoder == EncoderType::uni ? 1 : 2),
        embedding_(layout, shape, Side::encoder),
        embedded_columns_(shape.source_embedding),
        units_(shape.units),
        number_(layout.declare_layer()),
        residual_(shape.residual) {
    const int residual = shape.encoder_residual_layers();
    switch (type_) {
      case EncoderType::uni:
        stacks_.emplace_back(layout, shape, "", 0, 0, shape.encoder_layers, shape.source_embedding, residual);
        break;
      case EncoderType::bi:
        for (const int s : {0, 1}) {
          stacks_.emplace_back(layout, shape, s == 0 ? "fw/" : "bw/", s, 0, shape.encoder_layers / 2,
                               shape.source_embedding, residual / 2);
        }
        break;
      case EncoderType::gnmt:
        for (const int s : {0, 1}) {
          stacks_.emplace_back(layout, shape, s == 0 ? "fw/" : "bw/", s, 0, 1, shape.source_embedding, 0);
        }
        stacks_.emplace_back(layout, shape, "", 0, 1, shape.encoder_layers - 1, 2 * shape.units, residual);
        break;
    }
  }

  void plan(Arena& arena, std::int64_t sentences, std::int64_t steps, bool training) override {
    const std::int64_t rows = sentences * steps;
    embedded_ = arena.take(rows, embedded_columns_);
    result_.memory = arena.take(rows, depth());
    joined_ = has_upper() ? arena.take(rows, 2 * units_) : result_.memory;
    for (std::size_t s = 0; s < stacks_.size(); ++s) {
      stacks_[s].plan(arena, sentences, steps, training,
                      s < readers_ ? of_reader(joined_, s) : result_.memory);
    }
    result_.states.clear();
    for (std::size_t n = 0; state_layer(n) != nullptr; ++n) {
      result_.states.push_back(state_layer(n)->final_state());
    }
    if (!training) return;
    result_.d_memory = arena.take(rows, depth());
    d_joined_ = has_upper() ? arena.take(rows, 2 * units_) : result_.d_memory;
    d_embedded_ = arena.take(rows, embedded_columns_);
    if (readers_ == 2) d_second_ = arena.take(rows, embedded_columns_);
    for (std::size_t s = 0; s < readers_; ++s) {
      auto& [even, odd] = d_between_[s];
      even = arena.take(rows, units_);
      odd = residual_ ? arena.take(rows, units_) : even;
    }
    result_.d_states = result_.states;
    for (RnnState& state : result_.d_states) {
      for (Tensor* tensor : {&state.h, &state.c}) {
        if (!tensor->empty()) *tensor = arena.take(sentences, units_, tensor->type);
      }
    }
  }

  void forward(const StepContext& step, const Indices& ids, const Indices& lengths) override {
    result_.lengths = lengths;
    embedding_.forward(step, ids, embedded_);
    if (readers_ == 1) {
      stacks_[0].forward(step, embedded_, lengths);
    } else {
      const auto forwards = [&] { stacks_[0].forward(step, embedded_, lengths); };
      const auto backwards = [&] { stacks_[1].forward(step, embedded_, lengths); };
      step.backend.side_by_side(std::cref(forwards), std::cref(backwards));
    }
    if (has_upper()) stacks_.back().forward(step, joined_, lengths);
  }

  void backward(const StepContext& step, const Indices& ids) override {
    if (has_upper()) backward(step, stacks_.size() - 1, result_.d_memory, d_joined_);
    const auto read_backward = [&](std::size_t s, const Tensor& d_input) {
      backward(step, s, of_reader(d_joined_, s), d_input);
    };
    if (readers_ == 1) {
      read_backward(0, d_embedded_);
    } else {
      // One part, so that gradients are final when both have ended.
      step.replay(number_, 1, [&] {
        step.backend.side_by_side([&] { read_backward(1, d_embedded_); },
                                  [&] { read_backward(0, d_second_); });
        step.backend.add(d_second_, d_embedded_);
      });
    }
    step.replay(number_, 0, [&] { embedding_.backward(step, d_embedded_, ids); });
  }

  [[nodiscard]] std::int64_t depth() const override { return type_ == EncoderType::bi ? 2 * units_ : units_; }

 private:
  [[nodiscard]] bool has_upper() const { return stacks_.size() > readers_; }
  [[nodiscard]] Tensor of_reader(const Tensor& joined, std::size_t s) const {
    return joined.col_range(static_cast<std::int64_t>(s) * units_, units_);
  }

  /// The layer whose final state is the result's n-th: fw 0, bw 0, fw 1, bw 1, ...; with `gnmt` the one that
  /// reads backwards, then the stack's.
  [[nodiscard]] const RnnLayer* state_layer(std::size_t n) const {
    const auto layer = [&](std::size_t stack, std::size_t l) {
      return l < stacks_[stack].layers.size() ? &stacks_[stack].layers[l] : nullptr;
    };
    switch (type_) {
      case EncoderType::uni:
        return layer(0, n);
      case EncoderType::bi:
        return layer(n % 2, n / 2);
      case EncoderType::gnmt:
        return n == 0 ? layer(1, 0) : layer(2, n - 1);
    }
    return nullptr;
  }

  void backward(const StepContext& step, std::size_t s, const Tensor& d_output, const Tensor& d_input) {
    Stack& stack = stacks_[s];
    const auto& between = d_between_[s % readers_];
    const auto gradients_of = [&](std::size_t l) {
      RnnGradients gradients;
      gradients.d_output = l + 1 == stack.layers.size() ? d_output : between[(l + 1) % 2];
      gradients.d_inputs = l > 0 ? between[l % 2] : d_input;
      for (std::size_t n = 0; n < result_.d_states.size(); ++n) {
        if (state_layer(n) == &stack.layers[l]) gradients.d_final = result_.d_states[n];
      }
      return gradients;
    };
    backward_stack(step, stack.number, stack.layers, gradients_of, [](std::size_t, const Chunk&) {});
  }

  EncoderType type_;
  std::size_t readers_;  // stacks that read the words
  Embedding embedding_;
  std::int64_t embedded_columns_, units_;
  std::size_t number_;
  bool residual_;
  std::vector<Stack> stacks_;  // the readers, and with `gnmt` the one above
  Tensor embedded_, joined_;   // joined: the readers' outputs
  Tensor d_embedded_, d_second_, d_joined_;
  std::array<std::array<Tensor, 2>, 2> d_between_;  // layers of each reader, and of the stack above
};

/// Of a language model.
class NoEncoder final : public Encoder {
 public:
  void plan(Arena&, std::int64_t, std::int64_t, bool) override {}
  void forward(const StepContext&, const Indices&, const Indices&) override {}
  void backward(const StepContext&, const Indices&) override {}
  [[nodiscard]] std::int64_t depth() const override { return 0; }
};

}  // namespace

std::unique_ptr<Encoder> make_encoder(ParameterLayout& layout, const ModelShape& shape) {
  if (shape.language_model) return std::make_unique<NoEncoder>();
  return std::make_unique<StackedEncoder>(layout, shape);
}

}  // namespace nmt
