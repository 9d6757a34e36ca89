// Operations on activations of 16 bits against the fp64 reference. They compute in fp32 and round once, for
// every width and alignment of rows: else mixed precision would train on wrong numbers for some sizes.

#include <tuple>

#include "ddl/float16.hpp"
#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

class NarrowOperation : public testing::TestWithParam<std::tuple<BackendCase, Layout>> {
 protected:
  using Outputs = std::vector<Values>;

  /// Random numbers that the 16-bit type has.
  Values narrow_values(std::int64_t rows, std::int64_t cols, double low = -1, double high = 1) {
    return random_.values(rows, cols, low, high).map([&](double x) {
      const auto value = static_cast<float>(x);
      return static_cast<double>(is_f16() ? static_cast<float>(ddl::float16(value))
                                          : static_cast<float>(ddl::bfloat16(value)));
    });
  }
  static Tensor narrow(Memory& memory, const Values& values) {
    return memory.tensor(values, std::get<1>(GetParam()), memory->narrow_type());
  }
  static Tensor narrow(Memory& memory, std::int64_t rows, std::int64_t cols) {
    return narrow(memory, Values(rows, cols, 7));
  }

  template <typename Operation>
  void expect_reference(Operation operation) {
    Memory memory(*backend_, std::get<1>(GetParam()));
    Memory reference(*reference_, std::get<1>(GetParam()));
    const Outputs actual = operation(memory), expected = operation(reference);
    const double roundoff = is_f16() ? 0x1p-11 : 0x1p-8;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Values bound = expected[i].map([&](double x) { return roundoff * std::abs(x) + 1e-5; });
      EXPECT_TRUE(close(actual[i], expected[i], bound)) << "output " << i;
    }
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(std::get<0>(GetParam()));
  std::unique_ptr<Backend> reference_ = make_reference_backend();
  Random random_{7};

 private:
  [[nodiscard]] bool is_f16() const { return backend_->narrow_type() == ddl::DataType::f16; }
};

TEST_P(NarrowOperation, MovesRows) {
  for (const std::int64_t cols : {1, 5, 8, 13, 64, 100, 2100}) {
    SCOPED_TRACE(cols);
    const Values x = narrow_values(6, cols), y = narrow_values(6, cols), table = narrow_values(9, cols);
    const Values row = random_.values(1, cols), wide_table = random_.values(9, cols);
    expect_reference([&](Memory& memory) {
      const Indices rows = memory.indices({8, 0, 3, 4, 0, 7}), places = memory.indices({5, 0, 3, 4, 1, 8});
      const Tensor from = narrow(memory, x), sum = narrow(memory, y), wide_sum = memory.tensor(y);
      memory->add(from, sum);
      memory->add(from, wide_sum);
      const Tensor copied = narrow(memory, 6, cols), widened = memory.tensor(6, cols);
      memory->copy(memory.tensor(x), copied);
      memory->copy(from, widened);
      const Tensor gathered = narrow(memory, 6, cols), embedded = narrow(memory, 6, cols);
      memory->gather_rows(narrow(memory, table), rows, gathered);
      memory->gather_rows(memory.tensor(wide_table), rows, embedded);
      const Tensor scattered = narrow(memory, table);
      memory->scatter_rows(from, places, scattered);
      const Tensor shifted = narrow(memory, x);
      memory->add_row(memory.tensor(row), shifted);
      Outputs outputs;
      for (const Tensor& output : {sum, wide_sum, copied, widened, gathered, embedded, scattered, shifted})
        outputs.push_back(memory.read(output));
      return outputs;
    });
  }
}

TEST_P(NarrowOperation, Dropout) {
  for (const std::int64_t cols : {1, 5, 8, 13, 64, 100, 2100}) {
    SCOPED_TRACE(cols);
    const Values x = narrow_values(6, cols, 0.5, 1);
    expect_reference([&](Memory& memory) {
      const Tensor from = narrow(memory, x), to = narrow(memory, 6, cols);
      const Indices samples = memory.indices({8, 2, 1'000'000'000});
      memory->dropout(from, to, memory.key({5, 6, 7}), 0.3, samples, 2, 16);
      memory->dropout(from, from, memory.key({5, 6, 8}), 0.3, samples, 2, 16);
      return Outputs{memory.read(to), memory.read(from)};
    });
  }
}

TEST_P(NarrowOperation, LstmCell) {
  for (const std::int64_t units : {1, 5, 8, 20, 24, 264})
    for (const bool masked : {false, true}) {
      SCOPED_TRACE(testing::Message() << units << " units" << (masked ? ", masked" : ""));
      const std::int64_t batch = 5;
      const Values pre = narrow_values(batch, 4 * units, -2, 2), h_prev = narrow_values(batch, units);
      const Values products = random_.values(batch, 4 * units), bias = random_.values(1, 4 * units);
      const Values c_prev = random_.values(batch, units, -2, 2), d_c = random_.values(batch, units);
      const Values activations = narrow_values(batch, 4 * units, 0, 1), tanh_c = narrow_values(batch, units);
      const Values d_output = narrow_values(batch, units), d_h = narrow_values(batch, units);
      expect_reference([&](Memory& memory) {
        const Indices lengths = masked ? memory.indices({3, 9, 0, 4, 5}) : Indices();
        const Backend::LstmStep forward{.gates = narrow(memory, pre),
                                        .bias = memory.tensor(bias),
                                        .c_prev = memory.tensor(c_prev),
                                        .h_prev = narrow(memory, h_prev),
                                        .c = memory.tensor(batch, units),
                                        .h = narrow(memory, batch, units),
                                        .tanh_c = narrow(memory, Values(batch, units)),
                                        .output = narrow(memory, batch, units),
                                        .products = memory.tensor(products),
                                        .lengths = lengths,
                                        .step = 4};
        memory->lstm_cell_forward(forward);
        const Backend::LstmStepBackward backward{.gates = narrow(memory, activations),
                                                 .c_prev = forward.c_prev,
                                                 .tanh_c = narrow(memory, tanh_c),
                                                 .d_output = narrow(memory, d_output),
                                                 .d_h = narrow(memory, d_h),
                                                 .d_h_prev = narrow(memory, batch, units),
                                                 .d_c = memory.tensor(d_c),
                                                 .lengths = lengths,
                                                 .step = 4};
        memory->lstm_cell_backward(backward);
        Outputs outputs;
        for (const Tensor& output :
             {forward.c, forward.h, forward.output, backward.gates, backward.d_h_prev, backward.d_c})
          outputs.push_back(memory.read(output));
        // Masked rows have no activations.
        if (!masked) outputs.insert(outputs.end(), {memory.read(forward.gates), memory.read(forward.tanh_c)});
        return outputs;
      });
    }
}

TEST_P(NarrowOperation, SoftmaxWithANarrowGradientInTheLogitsPlace) {
  for (const std::int64_t vocabulary : {1, 9, 64, 129, 4099, 9001}) {
    SCOPED_TRACE(vocabulary);
    const Values x = random_.values(3, vocabulary, -4, 4).map([&](double logit) { return 5 * logit; });
    const auto targets = random_.integers(3, 0, static_cast<std::int32_t>(vocabulary - 1));
    expect_reference([&](Memory& memory) {
      const Tensor logits = memory.tensor(x), sums = memory.sums(2);
      const auto type = memory->narrow_type();
      const auto each = static_cast<std::int64_t>(ddl::size_of(logits.type) / ddl::size_of(type));
      const Tensor gradient(logits.data, 3, vocabulary, logits.stride * each, type);
      const Tensor scale = memory.sums(std::vector<float>{4});
      memory->softmax_cross_entropy(logits, memory.indices(targets), 0.1, gradient, scale.as<double>(), sums);
      return Outputs{memory.read(gradient), memory.read(sums)};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, NarrowOperation,
    testing::Combine(testing::ValuesIn(narrow_backends()),
                     testing::Values(Layout::contiguous, Layout::strided, Layout::aligned)),
    [](const auto& test) { return std::get<0>(test.param).name + name_of(std::get<1>(test.param)); });

}  // namespace
}  // namespace nmt::test
