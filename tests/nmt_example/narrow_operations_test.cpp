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

  /// `largest`: of what is added up after a rounding.
  template <typename Operation>
  void expect_reference(Operation operation, double largest = 0) {
    Memory memory(*backend_, std::get<1>(GetParam()));
    Memory reference(*reference_, std::get<1>(GetParam()));
    const Outputs actual = operation(memory), expected = operation(reference);
    const double roundoff = is_f16() ? 0x1p-11 : 0x1p-8;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Values bound =
          expected[i].map([&](double x) { return roundoff * (std::abs(x) + largest) + 1e-5; });
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

TEST_P(NarrowOperation, MultiplyByPartsOfAParameter) {
  struct Part {
    std::int64_t first_row, rows, first_col, cols;
  };
  const std::vector<Part> parts = {{0, 60, 0, 48}, {0, 33, 0, 48}, {33, 27, 0, 48},
                                   {0, 60, 8, 24}, {0, 60, 5, 13}, {3, 5, 1, 7}};
  const Values first = narrow_values(60, 48), second = narrow_values(60, 48);
  for (const std::int64_t rows : {1, 17, 70})
    for (const Transpose tb : {Transpose::no, Transpose::yes})
      for (const bool accumulate : {false, true})
        for (const bool is_narrow : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << rows << " rows" << (tb == Transpose::yes ? ", transposed" : "")
                       << (accumulate ? ", accumulated" : "") << (is_narrow ? ", narrow" : ""));
          std::vector<Values> a, c;
          for (const Part& part : parts) {
            a.push_back(narrow_values(rows, tb == Transpose::yes ? part.cols : part.rows));
            c.push_back(narrow_values(rows, tb == Transpose::yes ? part.rows : part.cols));
          }
          expect_reference([&](Memory& memory) {
            const Tensor parameter = memory.tensor(first);
            Outputs outputs;
            for (const Values* values : {&first, &second}) {
              memory.write(parameter, *values);
              memory->parameters_changed();
              for (std::size_t i = 0; i < parts.size(); ++i) {
                const Part& p = parts[i];
                const Tensor result = is_narrow ? narrow(memory, c[i]) : memory.tensor(c[i]);
                memory->multiply(narrow(memory, a[i]), tb,
                                 parameter.row_range(p.first_row, p.rows).col_range(p.first_col, p.cols),
                                 accumulate, result);
                outputs.push_back(memory.read(result));
              }
            }
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

TEST_P(NarrowOperation, Attention) {
  const std::int64_t sentences = 3, source_steps = 9, target_steps = 2, rows = target_steps * sentences;
  for (const auto& [units, depth] :
       {std::pair<std::int64_t, std::int64_t>{1, 8}, {8, 5}, {20, 24}, {64, 13}, {600, 264}})
    for (const bool additive : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << units << " units, depth " << depth << (additive ? ", additive" : ""));
      const auto size = 1 / std::sqrt(static_cast<double>(units));
      const Values query = narrow_values(rows, units, -size, size), v = random_.values(1, units, -size, size);
      const Values keys = narrow_values(source_steps * sentences, units);
      const Values memory_rows = narrow_values(source_steps * sentences, depth, -0.25, 0.25);
      const Values d_context = narrow_values(rows, depth, -1 / static_cast<double>(depth));
      const std::vector<std::int32_t> lengths_of = {9, 1, 4};
      Values weights = narrow_values(rows, source_steps, 0, 0.25);
      Values d_scores = narrow_values(rows, source_steps, -0.25, 0.25);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t s = lengths_of[static_cast<std::size_t>(r % sentences)]; s < source_steps; ++s)
          weights(r, s) = d_scores(r, s) = 0;
      }
      expect_reference(
          [&](Memory& memory) {
            const AttentionShape shape{sentences, source_steps};
            const Tensor scale = memory.tensor(Values(1, 1, 0.5)), d_scale = memory.tensor(Values(1, 1));
            const Tensor d_v = memory.tensor(Values(1, units), Layout::contiguous);
            AttentionScore score{.scale = scale}, d_score{.scale = d_scale};
            if (additive) score = {.v = memory.tensor(v, Layout::contiguous)}, d_score = {.v = d_v};
            const Indices lengths = memory.indices(lengths_of);
            const Tensor q = narrow(memory, query), k = narrow(memory, keys), m = narrow(memory, memory_rows);
            const Tensor given = narrow(memory, weights), d_given = narrow(memory, d_context);
            const Tensor found = narrow(memory, rows, source_steps), context = narrow(memory, rows, depth);
            const Tensor d_found = narrow(memory, rows, source_steps), d_query = narrow(memory, rows, units);
            const Tensor d_keys = narrow(memory, keys.rows, units),
                         d_memory = narrow(memory, keys.rows, depth);
            memory->attention_forward(shape, score, q, k, m, lengths, found, context);
            memory->attention_backward(shape, score, q, k, m, lengths, given, d_given, d_found, d_query);
            memory->attention_memory_backward(shape, score, q, k, lengths, given, narrow(memory, d_scores),
                                              d_given, d_keys, d_memory, d_score);
            Outputs outputs;
            for (const Tensor& output :
                 {found, context, d_found, d_query, d_keys, d_memory, additive ? d_score.v : d_score.scale})
              outputs.push_back(memory.read(output));
            return outputs;
          },
          1);
    }
}

TEST_P(NarrowOperation, ColumnSums) {
  for (const std::int64_t rows : {1, 7, 300})
    for (const std::int64_t cols : {1, 5, 8, 13, 40, 100}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << cols);
      const Values x = narrow_values(rows, cols), start = random_.values(1, cols);
      expect_reference([&](Memory& memory) {
        const Tensor sums = memory.tensor(start);
        memory->add_column_sums(narrow(memory, x), sums);
        return Outputs{memory.read(sums)};
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
