// Whole LSTM layers that a CUDA backend computes at once, compared with the reference's step by step.
// Otherwise a run's losses would depend on --rnn. The same program runs the models' tests with such layers.

#include <fmt/format.h>

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

struct LayerCase {
  std::string name;
  std::int64_t steps, batch, inputs, units;
  std::vector<std::int32_t> lengths = {};  ///< Empty: no lengths.
  bool reads_backwards = false;
  bool from_zero = false;
  bool has_output = true, has_d_x = true;
  Layout layout = Layout::contiguous;  ///< Of the input, the output and their gradients.
};

void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

/// A layer's tensors in a backend's memory, with the same values in all backends.
struct LayerOf {
  LayerOf(Memory& memory_, const LayerCase& c) : LayerOf(memory_, c, memory_.backend().type()) {}
  /// `type`: of activations and their gradients.
  LayerOf(Memory& memory_, const LayerCase& c, ddl::DataType type) : memory(memory_) {
    Random random(7);
    const std::int64_t rows = c.steps * c.batch, first = c.reads_backwards ? rows : 0;
    const auto activations = [&](const Values& values, Layout layout) {
      if (type == memory.backend().type()) return memory.tensor(values, layout);
      owned.push_back(memory->allocate(values.data.size() * ddl::size_of(type)));
      const Tensor tensor(owned.back().get(), values.rows, values.cols, values.cols, type);
      memory.write(tensor, values);
      return tensor;
    };
    const auto place = [&](std::int64_t cols, Layout layout) {
      return activations(random.values(rows, cols), layout);
    };
    const Values h0 = random.values(c.batch, c.units), c0 = random.values(c.batch, c.units, -2, 2);
    layer.x = place(c.inputs, c.layout);
    layer.kernel = memory.tensor(random.values(c.inputs + c.units, 4 * c.units), Layout::contiguous);
    layer.bias = memory.tensor(random.values(1, 4 * c.units), Layout::contiguous);
    layer.gates = activations(Values(rows, 4 * c.units), Layout::contiguous);
    layer.h = activations(Values(rows + c.batch, c.units), Layout::contiguous);
    layer.c = memory.tensor(Values(rows + c.batch, c.units), Layout::contiguous);
    memory.write(layer.h.row_range(first, c.batch), h0.times(c.from_zero ? 0 : 1));
    memory.write(layer.c.row_range(first, c.batch), c0.times(c.from_zero ? 0 : 1));
    layer.tanh_c = activations(Values(rows, c.units), Layout::contiguous);
    const Tensor output = place(c.units, c.layout);
    if (c.has_output) layer.output = output;
    if (!c.lengths.empty()) layer.lengths = memory.indices(c.lengths);
    layer.from_zero = c.from_zero;
    layer.reads_backwards = c.reads_backwards;
    layer.backward_follows = true;
    layer.forget_bias = 0.75;
    gradients.d_output = place(c.units, c.layout);
    gradients.d_h = activations(random.values(c.batch, c.units), c.layout);
    gradients.d_c = memory.tensor(random.values(c.batch, c.units), Layout::contiguous);
    gradients.d_kernel =
        memory.tensor(random.values(layer.kernel.rows, layer.kernel.cols), Layout::contiguous);
    gradients.d_bias = memory.tensor(random.values(1, 4 * c.units), Layout::contiguous);
    const Tensor d_x = place(c.inputs, c.layout);
    if (c.has_d_x) gradients.d_x = d_x;
    steps = c.steps;
    batch = c.batch;
  }

  [[nodiscard]] Tensor at(const Tensor& x, std::int64_t t) const {
    return x.empty() ? Tensor() : x.row_range(t * batch, batch);
  }
  [[nodiscard]] std::int64_t before(std::int64_t t) const { return layer.reads_backwards ? t + 1 : t; }
  [[nodiscard]] std::int64_t after(std::int64_t t) const { return layer.reads_backwards ? t : t + 1; }
  [[nodiscard]] std::int64_t nth(std::int64_t i) const { return layer.reads_backwards ? steps - 1 - i : i; }
  [[nodiscard]] Tensor input_rows(const Tensor& kernel) const { return kernel.row_range(0, layer.x.cols); }
  [[nodiscard]] Tensor state_rows(const Tensor& kernel) const {
    return kernel.row_range(layer.x.cols, layer.h.cols);
  }

  void forward_by_steps() {
    memory->gemm(Transpose::no, Transpose::no, layer.x, input_rows(layer.kernel), false, layer.gates);
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t t = nth(i);
      const Tensor gates = at(layer.gates, t);
      memory->gemm(Transpose::no, Transpose::no, at(layer.h, before(t)), state_rows(layer.kernel), true,
                   gates);
      memory->lstm_cell_forward({.gates = gates,
                                 .bias = layer.bias,
                                 .c_prev = at(layer.c, before(t)),
                                 .h_prev = at(layer.h, before(t)),
                                 .c = at(layer.c, after(t)),
                                 .h = at(layer.h, after(t)),
                                 .tanh_c = at(layer.tanh_c, t),
                                 .output = at(layer.output, t),
                                 .lengths = layer.lengths,
                                 .step = t,
                                 .forget_bias = layer.forget_bias});
    }
  }
  void backward_by_steps() {
    const auto& [d_output, d_h, d_c, d_kernel, d_bias, d_x] = gradients;
    for (std::int64_t i = steps; i-- > 0;) {
      const std::int64_t t = nth(i);
      memory->lstm_cell_backward({.gates = at(layer.gates, t),
                                  .c_prev = at(layer.c, before(t)),
                                  .tanh_c = at(layer.tanh_c, t),
                                  .d_output = at(d_output, t),
                                  .d_h = d_h,
                                  .d_h_prev = d_h,
                                  .d_c = d_c,
                                  .lengths = layer.lengths,
                                  .step = t});
      memory->gemm(Transpose::no, Transpose::yes, at(layer.gates, t), state_rows(layer.kernel), true, d_h);
    }
    const Tensor h = layer.h.row_range(before(0) * batch, steps * batch);
    memory->gemm(Transpose::yes, Transpose::no, layer.x, layer.gates, true, input_rows(d_kernel));
    memory->gemm(Transpose::yes, Transpose::no, h, layer.gates, true, state_rows(d_kernel));
    memory->add_column_sums(layer.gates, d_bias);
    if (d_x.empty()) return;
    memory->gemm(Transpose::no, Transpose::yes, layer.gates, input_rows(layer.kernel), false, d_x);
  }

  /// What a caller may read.
  [[nodiscard]] std::vector<std::pair<std::string, Values>> results() const {
    std::vector<std::pair<std::string, Values>> all;
    const auto add = [&](const std::string& name, const Tensor& x) {
      if (!x.empty()) all.emplace_back(name, memory.read(x));
    };
    add("h", layer.h);
    add("last c", at(layer.c, after(nth(steps - 1))));
    add("output", layer.output);
    add("d_h", gradients.d_h);
    add("d_c", gradients.d_c);
    add("d_kernel", gradients.d_kernel);
    add("d_bias", gradients.d_bias);
    add("d_x", gradients.d_x);
    return all;
  }

  Memory& memory;
  Backend::LstmLayer layer;
  Backend::LstmLayerBackward gradients;
  std::int64_t steps = 0, batch = 0;
  std::vector<std::shared_ptr<void>> owned;
};

void expect_close(const LayerOf& actual, const LayerOf& expected, double roundoff = fp32_roundoff) {
  const auto found = actual.results(), wanted = expected.results();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, values] = wanted[i];
    EXPECT_TRUE(close(found[i].second, values, 256 * roundoff * (1 + values.largest()))) << name;
  }
}

std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> cases = {
      {"Plain", 5, 3, 6, 4},
      {"OneStepOneSentence", 1, 1, 3, 2},
      {"FromZero", 4, 2, 8, 8, {}, false, true},
      {"Lengths", 5, 4, 6, 4, {5, 2, 1, 4}},
      {"NoSteps", 4, 3, 5, 3, {0, 4, 2}},
      {"Backwards", 4, 3, 6, 5, {}, true},
      {"BackwardsLengths", 5, 4, 8, 4, {3, 5, 1, 2}, true, true},
      {"BackwardsLengthsFromState", 5, 4, 7, 4, {3, 5, 1, 0}, true},
      {"NoGradientOfInput", 3, 2, 4, 4, {3, 1}},
      {"PartsOfWiderTensors", 4, 3, 9, 6, {4, 1, 3}, true},
  };
  cases[8].has_d_x = cases[8].has_output = false;
  cases[8].lengths = {};
  cases[9].layout = Layout::strided;
  return cases;
}

class LstmLayers : public testing::TestWithParam<std::tuple<BackendCase, LayerCase>> {
 protected:
  std::unique_ptr<Backend> backend_ = make_or_skip(std::get<0>(GetParam()));
  std::unique_ptr<Backend> reference_ = make_reference_backend();
  const LayerCase& layer_ = std::get<1>(GetParam());
};

TEST_P(LstmLayers, AreTheReferencesSteps) {
  Memory memory(*backend_), memory_of_reference(*reference_);
  LayerOf actual(memory, layer_), expected(memory_of_reference, layer_);
  expected.forward_by_steps();
  expected.backward_by_steps();
  ASSERT_TRUE(memory->lstm_layer_forward(actual.layer));
  memory->lstm_layer_backward(actual.layer, actual.gradients);
  expect_close(actual, expected);
}

// Evaluation would give other losses than training.
TEST_P(LstmLayers, GiveTheSameWithoutABackwardPass) {
  Memory memory(*backend_);
  LayerOf trained(memory, layer_), evaluated(memory, layer_);
  evaluated.layer.backward_follows = false;
  ASSERT_TRUE(memory->lstm_layer_forward(trained.layer));
  ASSERT_TRUE(memory->lstm_layer_forward(evaluated.layer));
  const auto found = evaluated.results(), wanted = trained.results();
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(close(found[i].second, wanted[i].second, 0)) << found[i].first;
}

INSTANTIATE_TEST_SUITE_P(All, LstmLayers,
                         testing::Combine(testing::ValuesIn(backends_under_test()),
                                          testing::ValuesIn(layer_cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::get<1>(test.param).name;
                         });

std::vector<LayerCase> narrow_cases() {
  std::vector<LayerCase> cases = layer_cases();
  cases.push_back({"ManySentences", 3, 150, 8, 32});
  for (std::int32_t b = 0; b < 150; ++b) cases.back().lengths.push_back(b % 4);
  return cases;
}

class NarrowLstmLayers : public LstmLayers {};

// Training in 16 bits would go astray.
TEST_P(NarrowLstmLayers, AreNearTheReferencesSteps) {
  Memory memory(*backend_), memory_of_reference(*reference_);
  const ddl::DataType type = backend_->narrow_type();
  ASSERT_EQ(ddl::size_of(type), 2U);
  LayerOf actual(memory, layer_, type), expected(memory_of_reference, layer_);
  expected.forward_by_steps();
  expected.backward_by_steps();
  ASSERT_TRUE(memory->lstm_layer_forward(actual.layer));
  memory->lstm_layer_backward(actual.layer, actual.gradients);
  expect_close(actual, expected, 0x1p-14);
}

INSTANTIATE_TEST_SUITE_P(All, NarrowLstmLayers,
                         testing::Combine(testing::ValuesIn(narrow_backends()),
                                          testing::ValuesIn(narrow_cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::get<1>(test.param).name;
                         });

class LstmLayersOf : public testing::TestWithParam<BackendCase> {
 protected:
  std::unique_ptr<Backend> backend_ = make_or_skip(GetParam());
  std::unique_ptr<Backend> reference_ = make_reference_backend();
};

// A model's layers would take each other's memory, or keep weights of the step before.
TEST_P(LstmLayersOf, KeepApartLayersAndStatesOfParameters) {
  const std::vector<LayerCase> cases = layer_cases();
  Memory memory(*backend_), memory_of_reference(*reference_);
  std::vector<std::unique_ptr<LayerOf>> actual, expected;
  for (const LayerCase& c : cases) {
    actual.push_back(std::make_unique<LayerOf>(memory, c));
    expected.push_back(std::make_unique<LayerOf>(memory_of_reference, c));
  }
  // Half of the layers are beside the others. The backward pass begins with the other half, as that of an
  // encoder that reads both ways.
  const auto work_of = [&](std::size_t first, std::size_t last, const auto& work) {
    return [&work, first, last] {
      for (std::size_t l = first; l < last; ++l) work(l);
    };
  };
  const std::size_t half = cases.size() / 2;
  const auto forward = [&](std::size_t l) { ASSERT_TRUE(memory->lstm_layer_forward(actual[l]->layer)); };
  const auto backward = [&](std::size_t l) {
    memory->lstm_layer_backward(actual[l]->layer, actual[l]->gradients);
  };
  for (int step = 0; step < 3; ++step) {
    memory->side_by_side(work_of(0, half, forward), work_of(half, cases.size(), forward));
    memory->side_by_side(work_of(half, cases.size(), backward), work_of(0, half, backward));
    for (std::size_t l = 0; l < cases.size(); ++l) {
      SCOPED_TRACE(testing::Message() << cases[l].name << ", step " << step);
      expected[l]->forward_by_steps();
      expected[l]->backward_by_steps();
      expect_close(*actual[l], *expected[l]);
      const Values other = Random(static_cast<std::uint32_t>(100 + step)).values(1, cases[l].units * 4);
      memory.write(actual[l]->layer.kernel.row_range(1, 1), other);
      memory_of_reference.write(expected[l]->layer.kernel.row_range(1, 1), other);
    }
    memory->parameters_changed();
  }
}

INSTANTIATE_TEST_SUITE_P(All, LstmLayersOf, testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nmt::test
