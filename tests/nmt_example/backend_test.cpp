// Every operation of the backends under test against the fp64 reference, within the error bounds of fp32.
// Otherwise models would train on wrong numbers for some sizes, strides or thread counts.

#include <array>

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

constexpr std::array<std::int64_t, 5> odd_sizes = {1, 3, 17, 64, 129};

struct OperationCase {
  BackendCase backend;
  Layout layout;
};

class BackendOperation : public testing::TestWithParam<OperationCase> {
 protected:
  using Outputs = std::vector<Values>;

  /// Runs the operation on both backends and compares all its outputs.
  template <typename Operation>
  void expect_reference(Operation operation, const std::vector<Values>& bounds) {
    Memory memory(*backend_, GetParam().layout);
    Memory reference(*reference_, GetParam().layout);
    const Outputs actual = operation(memory);
    const Outputs expected = operation(reference);
    ASSERT_EQ(expected.size(), bounds.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(close(actual[i], expected[i], bounds[i])) << "output " << i;
  }

  /// The operation's outputs on the reference backend. With absolute values as inputs, they are the magnitude
  /// to which rounding errors are relative.
  template <typename Operation>
  Outputs on_reference(Operation operation) {
    Memory reference(*reference_);
    return operation(reference);
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(GetParam().backend);
  std::unique_ptr<Backend> reference_ = make_reference_backend();
  Random random_{99};
};

TEST_P(BackendOperation, ComputesInFp32AndAllocatesAlignedZeros) {
  EXPECT_EQ(backend_->type(), ddl::DataType::f32);
  const auto memory = backend_->allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0u);
  std::vector<float> floats(250, 7);
  backend_->download(Tensor(memory.get(), 1, 250, 250, ddl::DataType::f32), std::span<float>(floats));
  EXPECT_EQ(floats, std::vector<float>(250, 0.0f));
  const auto on_host = backend_->allocate_host(1000);
  const auto* bytes = static_cast<const unsigned char*>(on_host.get());
  EXPECT_TRUE(std::all_of(bytes, bytes + 1000, [](unsigned char byte) { return byte == 0; }));
}

TEST_P(BackendOperation, MovesData) {
  for (const std::int64_t rows : {0, 1, 3, 129})
    for (const std::int64_t cols : odd_sizes) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
      const Values x = random_.values(rows, cols);
      const Values y = random_.values(rows, cols);
      const Values table = random_.values(7, cols);
      const auto ids = random_.integers(rows, 0, 6);
      std::vector<std::int32_t> places(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < places.size(); ++i)
        places[i] = static_cast<std::int32_t>(2 * (places.size() - 1 - i));
      const Values target = random_.values(2 * rows + 1, cols);
      const auto operation = [&](Memory& memory) {
        const Tensor from = memory.tensor(x);
        const Tensor copied = memory.tensor(rows, cols);
        memory->copy(from, copied);
        const Tensor sum = memory.tensor(y);
        memory->add(from, sum);
        const Tensor zeroed = memory.tensor(y);
        memory->zero(zeroed);
        const Tensor gathered = memory.tensor(rows, cols);
        memory->gather_rows(memory.tensor(table), memory.indices(ids), gathered);
        const Tensor scattered = memory.tensor(target);
        memory->scatter_rows(from, memory.indices(places), scattered);
        std::vector<float> floats(static_cast<std::size_t>(rows * cols));
        memory->download(from, std::span<float>(floats));
        Values downloaded(rows, cols);
        std::copy(floats.begin(), floats.end(), downloaded.data.begin());
        return Outputs{memory.read(from),     memory.read(copied),    memory.read(sum), memory.read(zeroed),
                       memory.read(gathered), memory.read(scattered), downloaded};
      };
      const Values exact(rows, cols);
      expect_reference(operation, {exact, exact, Values(rows, cols, 2 * fp32_roundoff), exact, exact,
                                   Values(target.rows, cols), exact});
    }
}

TEST_P(BackendOperation, FillColumnsBut) {
  for (const std::int64_t rows : {0, 1, 3, 129})
    for (const std::int64_t cols : odd_sizes) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
      const std::int64_t all = 2 * cols + 1;
      const Values wide = random_.values(rows, all);
      const auto kept = random_.integers(rows, 0, static_cast<std::int32_t>(all - 1));
      const auto operation = [&](Memory& memory) {
        const Tensor filled = memory.tensor(wide);
        memory->fill_columns_but(filled, cols, memory.indices(kept), -1e30);
        return Outputs{memory.read(filled).map([](double x) { return std::max(x, -1e29); })};
      };
      expect_reference(operation, {Values(rows, all)});
    }
}

TEST_P(BackendOperation, SumsInFp64CanBeZeroed) {
  Memory memory(*backend_, GetParam().layout);
  const Tensor sums = memory.sums({0x1p120f, 1});
  EXPECT_EQ(memory.read(sums)(0, 0), 0x1p120);
  EXPECT_EQ(memory.read(sums)(0, 1), 1.0);
  memory->zero(sums);
  EXPECT_EQ(memory.read(sums).largest(), 0.0);
}

TEST_P(BackendOperation, Gemm) {
  std::vector<std::array<std::int64_t, 3>> sizes = {{0, 3, 5}, {4, 0, 3}, {4, 3, 0}, {64, 256, 64}};
  for (const std::int64_t m : odd_sizes)
    for (const std::int64_t n : odd_sizes)
      for (const std::int64_t k : odd_sizes) sizes.push_back({m, n, k});
  for (const auto& [m, n, k] : sizes)
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
                     (ta == Transpose::yes ? " a transposed" : "") +
                     (tb == Transpose::yes ? " b transposed" : ""));
        const bool accumulate = (m + n + k) % 2 == 0;
        const Values a = ta == Transpose::yes ? random_.values(k, m) : random_.values(m, k);
        const Values b = tb == Transpose::yes ? random_.values(n, k) : random_.values(k, n);
        const Values c = random_.values(m, n);
        const auto product = [&](const Values& left, const Values& right, const Values& start) {
          return [&, accumulate](Memory& memory) {
            const Tensor result = memory.tensor(start);
            memory->gemm(ta, tb, memory.tensor(left), memory.tensor(right), accumulate, result);
            return Outputs{memory.read(result)};
          };
        };
        const Values magnitude = on_reference(product(a.abs(), b.abs(), c.abs())).front();
        expect_reference(product(a, b, c), {magnitude.times(static_cast<double>(k + 2) * fp32_roundoff)});
      }
}

TEST_P(BackendOperation, GemmOverwritesNanUnlessItAccumulates) {
  Memory memory(*backend_, GetParam().layout);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor a = memory.tensor(Values(3, 4, 1));
  const Tensor b = memory.tensor(Values(4, 5, 1));
  const Tensor c = memory.tensor(Values(3, 5, nan));
  memory->gemm(Transpose::no, Transpose::no, a, b, false, c);
  EXPECT_TRUE(close(memory.read(c), Values(3, 5, 4), 0));
  const Tensor bad = memory.tensor(Values(4, 5, nan));
  memory->gemm(Transpose::no, Transpose::no, a, bad, true, c);
  for (const double x : memory.read(c).data) EXPECT_TRUE(std::isnan(x)) << "NaN was lost on the way";
}

// Layers would multiply by other parts of a parameter, or by what it was before an update.
TEST_P(BackendOperation, MultiplyByPartsOfAParameter) {
  struct Part {
    std::int64_t first_row, rows, first_col, cols;
  };
  const Values first = random_.values(120, 100), second = random_.values(120, 100);
  for (const std::int64_t rows : {0, 1, 17, 260})
    for (const Transpose tb : {Transpose::no, Transpose::yes})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << " rows" << (tb == Transpose::yes ? ", transposed" : "")
                                        << (accumulate ? ", accumulated" : ""));
        std::vector<Values> a, c;
        const std::vector<Part> parts = {
            {0, 120, 0, 100}, {0, 70, 0, 100}, {70, 50, 0, 100}, {0, 120, 5, 64}, {3, 5, 1, 7}};
        for (const Part& part : parts) {
          a.push_back(random_.values(rows, tb == Transpose::yes ? part.cols : part.rows));
          c.push_back(random_.values(rows, tb == Transpose::yes ? part.rows : part.cols));
        }
        std::vector<Values> bounds;
        for (int time = 0; time < 2; ++time)
          for (std::size_t i = 0; i < parts.size(); ++i) {
            const auto inner = static_cast<double>(a[i].cols);
            bounds.emplace_back(rows, c[i].cols, (inner + 2) * inner * fp32_roundoff);
          }
        const auto operation = [&](Memory& memory) {
          const Tensor parameter = memory.tensor(first);
          Outputs outputs;
          for (const Values* values : {&first, &second}) {
            memory.write(parameter, *values);
            memory->parameters_changed();
            for (std::size_t i = 0; i < parts.size(); ++i) {
              const Part& p = parts[i];
              const Tensor result = memory.tensor(c[i]);
              memory->multiply(memory.tensor(a[i]), tb,
                               parameter.row_range(p.first_row, p.rows).col_range(p.first_col, p.cols),
                               accumulate, result);
              outputs.push_back(memory.read(result));
            }
          }
          return outputs;
        };
        expect_reference(operation, bounds);
      }
}

TEST_P(BackendOperation, AddRow) {
  for (const std::int64_t rows : {0, 1, 3, 129})
    for (const std::int64_t cols : odd_sizes) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
      const Values x = random_.values(rows, cols), row = random_.values(1, cols);
      const auto operation = [&](Memory& memory) {
        const Tensor to = memory.tensor(x);
        memory->add_row(memory.tensor(row), to);
        return Outputs{memory.read(to)};
      };
      expect_reference(operation, {Values(rows, cols, 2 * fp32_roundoff)});
    }
}

TEST_P(BackendOperation, ColumnSums) {
  for (const std::int64_t rows : {0, 1, 3, 17, 64, 129})
    for (const std::int64_t cols : odd_sizes) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
      const Values x = random_.values(rows, cols);
      const Values start = random_.values(1, cols);
      const auto sums = [](const Values& values, const Values& first) {
        return [&](Memory& memory) {
          const Tensor to = memory.tensor(first);
          memory->add_column_sums(memory.tensor(values), to);
          return Outputs{memory.read(to)};
        };
      };
      const Values magnitude = on_reference(sums(x.abs(), start.abs())).front();
      expect_reference(sums(x, start), {magnitude.times(static_cast<double>(rows + 1) * fp32_roundoff)});
    }
}

TEST_P(BackendOperation, EmbeddingWithRepeatedIds) {
  for (const std::int64_t rows : {0, 1, 3, 129})
    for (const std::int64_t cols : odd_sizes) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
      const Values gradient = random_.values(rows, cols);
      const Values start = random_.values(10, cols);
      const auto ids = random_.integers(rows, 0, 4);
      const auto backward = [&](const Values& values, const Values& first) {
        return [&](Memory& memory) {
          const Tensor table = memory.tensor(first);
          memory->embedding_backward(memory.tensor(values), memory.indices(ids), table);
          return Outputs{memory.read(table)};
        };
      };
      const Values magnitude = on_reference(backward(gradient.abs(), start.abs())).front();
      expect_reference(backward(gradient, start),
                       {magnitude.times(static_cast<double>(rows + 1) * fp32_roundoff)});
    }
}

TEST_P(BackendOperation, DropoutValues) {
  for (const std::int64_t cols : odd_sizes) {
    const Values x = random_.values(12, cols);
    const auto operation = [&](Memory& memory) {
      const Tensor y = memory.tensor(12, cols);
      memory->dropout(memory.tensor(x), y, memory.key({5, 6, 7}), 0.3, memory.indices({8, 2, 1'000'000'000}),
                      2, 16);
      return Outputs{memory.read(y)};
    };
    const Values expected = on_reference(operation).front();
    expect_reference(operation, {expected.abs().times(4 * fp32_roundoff)});
  }
}

struct LstmCase {
  std::int64_t batch, units;
  bool masked, has_output;
};

std::vector<LstmCase> lstm_cases() {
  std::vector<LstmCase> cases;
  for (const std::int64_t batch : {0, 1, 3, 17, 64})
    for (const std::int64_t units : odd_sizes)
      for (const bool masked : {false, true})
        cases.push_back({batch, units, masked, (batch + units) % 4 != 0});
  return cases;
}

TEST_P(BackendOperation, LstmCellForward) {
  for (const auto& [batch, units, masked, has_output] : lstm_cases()) {
    SCOPED_TRACE(std::to_string(batch) + "x" + std::to_string(units) + (masked ? " masked" : ""));
    Values pre = random_.values(batch, 4 * units, -4, 4);
    // Saturated gates must neither overflow nor become NaN.
    if (batch > 1) pre(1, 0) = 200, pre(0, units) = -200, pre(0, 2 * units) = -150, pre(1, 3 * units) = -90;
    const Values bias = random_.values(1, 4 * units);
    const Values c_prev = random_.values(batch, units, -2, 2);
    const Values h_prev = random_.values(batch, units);
    const auto lengths = random_.integers(batch, 0, 9);
    const auto operation = [&, masked_ = masked, has_output_ = has_output](Memory& memory) {
      Backend::LstmStep step;
      step.gates = memory.tensor(pre);
      step.bias = memory.tensor(bias);
      step.c_prev = memory.tensor(c_prev);
      step.h_prev = memory.tensor(h_prev);
      step.c = memory.tensor(batch, units);
      step.h = memory.tensor(batch, units);
      step.tanh_c = memory.tensor(batch, units);
      if (has_output_) step.output = memory.tensor(batch, units);
      if (masked_) step.lengths = memory.indices(lengths);
      step.step = 4;
      memory->lstm_cell_forward(step);
      Values gates = memory.read(step.gates);
      Values tanh_c = memory.read(step.tanh_c);
      for (std::int64_t r = 0; r < batch; ++r) {
        if (!masked_ || step.step < lengths[static_cast<std::size_t>(r)]) continue;
        // These values of a masked row are not read.
        for (std::int64_t u = 0; u < 4 * units; ++u) gates(r, u) = 0;
        for (std::int64_t u = 0; u < units; ++u) tanh_c(r, u) = 0;
      }
      Outputs outputs = {gates, memory.read(step.c), memory.read(step.h), tanh_c};
      if (has_output_) outputs.push_back(memory.read(step.output));
      return outputs;
    };
    const double bound = 16 * fp32_roundoff;
    const Values of_state(batch, units, 3 * bound);
    std::vector<Values> bounds = {Values(batch, 4 * units, bound), of_state, of_state, of_state};
    if (has_output) bounds.push_back(of_state);
    expect_reference(operation, bounds);
  }
}

// A search's hypotheses would go on from the states of others.
TEST_P(BackendOperation, LstmCellForwardOfRowsWithTheSameStatesBefore) {
  for (const std::int64_t units : odd_sizes) {
    SCOPED_TRACE(units);
    const std::int64_t batch = 5, before = 3;
    const Values pre = random_.values(batch, 4 * units, -2, 2);
    const Values products = random_.values(before, 4 * units, -2, 2);
    const Values bias = random_.values(1, 4 * units);
    const Values c_prev = random_.values(before, units, -2, 2);
    const Values h_prev = random_.values(before, units);
    const auto operation = [&](Memory& memory) {
      Backend::LstmStep step;
      step.gates = memory.tensor(pre);
      step.products = memory.tensor(products);
      step.bias = memory.tensor(bias);
      step.c_prev = memory.tensor(c_prev);
      step.h_prev = memory.tensor(h_prev);
      step.c = memory.tensor(batch, units);
      step.h = memory.tensor(batch, units);
      step.tanh_c = memory.tensor(batch, units);
      step.sources = memory.indices({2, 0, 0, 1, 2});
      step.lengths = memory.indices({9, 9, 9, 9, 1});  // The last row is masked.
      step.step = 4;
      memory->lstm_cell_forward(step);
      return Outputs{memory.read(step.c), memory.read(step.h)};
    };
    const Values bound(batch, units, 48 * fp32_roundoff);
    expect_reference(operation, {bound, bound});
  }
}

TEST_P(BackendOperation, LstmCellForwardInPlace) {
  const std::int64_t batch = 5, units = 17;
  const Values pre = random_.values(batch, 4 * units, -4, 4);
  const Values c = random_.values(batch, units);
  const Values h = random_.values(batch, units);
  const auto operation = [&](Memory& memory) {
    Backend::LstmStep step;
    step.gates = memory.tensor(pre);
    step.bias = memory.tensor(Values(1, 4 * units));
    step.c = step.c_prev = memory.tensor(c);
    step.h = step.h_prev = memory.tensor(h);
    step.tanh_c = memory.tensor(batch, units);
    step.lengths = memory.indices({1, 2, 3, 4, 0});
    step.step = 2;
    memory->lstm_cell_forward(step);
    return Outputs{memory.read(step.c), memory.read(step.h)};
  };
  const Values bound(batch, units, 48 * fp32_roundoff);
  expect_reference(operation, {bound, bound});
}

TEST_P(BackendOperation, LstmCellBackward) {
  for (const auto& [batch, units, masked, has_output] : lstm_cases())
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(std::to_string(batch) + "x" + std::to_string(units) + (masked ? " masked" : "") +
                   (in_place ? " in place" : ""));
      Values gates = random_.values(batch, 4 * units, 0, 1);
      for (std::int64_t r = 0; r < batch; ++r)
        for (std::int64_t u = 0; u < units; ++u) gates(r, units + u) = gates(r, units + u) * 2 - 1;
      gates = gates.map([](double x) { return static_cast<double>(static_cast<float>(x)); });
      const Values c_prev = random_.values(batch, units, -2, 2);
      const Values tanh_c = random_.values(batch, units);
      const Values d_output = random_.values(batch, units);
      const Values d_h = random_.values(batch, units);
      const Values d_c = random_.values(batch, units);
      const auto lengths = random_.integers(batch, 0, 9);
      const auto operation = [&, masked_ = masked, has_output_ = has_output](Memory& memory) {
        Backend::LstmStepBackward step;
        step.gates = memory.tensor(gates);
        step.c_prev = memory.tensor(c_prev);
        step.tanh_c = memory.tensor(tanh_c);
        if (has_output_) step.d_output = memory.tensor(d_output);
        step.d_h = memory.tensor(d_h);
        if (in_place)
          step.d_h_prev = step.d_h;
        else if (masked_ || has_output_)
          step.d_h_prev = memory.tensor(batch, units);
        step.d_c = memory.tensor(d_c);
        if (masked_) step.lengths = memory.indices(lengths);
        step.step = 4;
        memory->lstm_cell_backward(step);
        Outputs outputs = {memory.read(step.gates), memory.read(step.d_c)};
        if (!step.d_h_prev.empty()) outputs.push_back(memory.read(step.d_h_prev));
        return outputs;
      };
      // Products of at most six factors; |d_h + d_output| <= 2, |d_c| <= 3, |c_prev| <= 2.
      const double bound = 6 * 16 * fp32_roundoff;
      std::vector<Values> bounds = {Values(batch, 4 * units, bound), Values(batch, units, bound)};
      if ((in_place || masked || has_output) && batch > 0) bounds.push_back(Values(batch, units));
      expect_reference(operation, bounds);
    }
}

struct AttentionCase {
  std::int64_t sentences, source_steps;
  std::int64_t search_rows;  // 0: as in training, of which `target_steps` are for each sentence
  std::int64_t target_steps, units, depth;
};

const std::vector<AttentionCase> attention_cases = {
    {1, 1, 0, 1, 1, 1},   {3, 17, 0, 3, 3, 17},  {17, 3, 0, 1, 64, 129}, {3, 64, 0, 3, 17, 3},
    {5, 9, 0, 4, 64, 64}, {2, 17, 7, 0, 17, 64}, {3, 129, 2, 0, 64, 1},  {0, 3, 0, 2, 17, 17},
};

enum class Score { plain, scaled, additive };

class Attention : public BackendOperation {
 protected:
  void make_inputs(const AttentionCase& c, Score of) {
    const std::int64_t rows = c.search_rows > 0 ? c.search_rows : c.target_steps * c.sentences;
    shape = {c.sentences, c.source_steps};
    sentence_of_row.clear();
    for (std::int64_t r = 0; r < rows; ++r)
      sentence_of_row.push_back(static_cast<std::int32_t>((c.search_rows > 0 ? r * r + 1 : r) % c.sentences));
    searches = c.search_rows > 0;
    query = random_.values(rows, c.units);
    keys = random_.values(c.source_steps * c.sentences, c.units);
    memory = random_.values(c.source_steps * c.sentences, c.depth);
    d_context = random_.values(rows, c.depth);
    lengths = random_.integers(c.sentences, 1, static_cast<std::int32_t>(c.source_steps));
    if (!lengths.empty()) lengths.front() = static_cast<std::int32_t>(c.source_steps);
    kind = of;
    scale = kind == Score::scaled ? 1.25 : 1.0;
    v = random_.values(1, c.units);
    // Values beyond a source's length are padding and must not matter.
    for (std::int64_t s = 0; s < c.source_steps; ++s)
      for (std::int64_t b = 0; b < c.sentences; ++b)
        if (s >= lengths[static_cast<std::size_t>(b)]) {
          for (std::int64_t u = 0; u < c.units; ++u) keys(s * c.sentences + b, u) = 1000;
          for (std::int64_t u = 0; u < c.depth; ++u) memory(s * c.sentences + b, u) = 1000;
        }
    largest_score = static_cast<double>(c.units) * scale;
    score_error = static_cast<double>(c.units + 8) * fp32_roundoff * largest_score;
  }
  AttentionScore score_in(Memory& at) const {
    if (kind == Score::scaled) return {.scale = at.tensor(Values(1, 1, scale))};
    return {.v = kind == Score::additive ? at.tensor(v, Layout::contiguous) : Tensor()};
  }

  AttentionShape shape_in(Memory& at) const {
    return {shape.sentences, shape.source_steps, searches ? at.indices(sentence_of_row) : Indices()};
  }
  std::int64_t length_of(std::int64_t row) const {
    return lengths[static_cast<std::size_t>(sentence_of_row[static_cast<std::size_t>(row)])];
  }

  AttentionShape shape;
  bool searches = false;
  Values query, keys, memory, d_context, v;
  std::vector<std::int32_t> lengths, sentence_of_row;
  double scale = 1, largest_score = 0, score_error = 0;
  Score kind = Score::plain;
};

TEST_P(Attention, Forward) {
  for (const AttentionCase& c : attention_cases)
    for (const Score of : {Score::plain, Score::scaled, Score::additive}) {
      make_inputs(c, of);
      SCOPED_TRACE(testing::Message()
                   << c.sentences << " sentences, " << c.source_steps << " steps, " << query.rows
                   << " queries, " << c.units << " units, depth " << c.depth);
      const auto operation = [&](Memory& at) {
        const Tensor weights = at.tensor(query.rows, c.source_steps);
        const Tensor context = at.tensor(query.rows, c.depth);
        at->attention_forward(shape_in(at), score_in(at), at.tensor(query), at.tensor(keys),
                              at.tensor(memory), at.indices(lengths), weights, context);
        return Outputs{at.read(weights), at.read(context)};
      };
      // An error e of the scores changes a weight by a factor of at most exp(2e).
      const double relative = 2 * score_error + static_cast<double>(c.source_steps + 16) * fp32_roundoff;
      const Values weights = on_reference(operation).front();
      expect_reference(operation, {weights.times(relative), Values(query.rows, c.depth, 2 * relative)});
    }
}

TEST_P(Attention, Backward) {
  for (const AttentionCase& c : attention_cases)
    for (const Score of : {Score::plain, Score::scaled, Score::additive}) {
      make_inputs(c, of);
      SCOPED_TRACE(testing::Message()
                   << c.sentences << " sentences, " << c.source_steps << " steps, " << query.rows
                   << " queries, " << c.units << " units, depth " << c.depth);
      Values weights = random_.values(query.rows, c.source_steps, 0, 1);
      for (std::int64_t r = 0; r < weights.rows; ++r) {
        const auto length = static_cast<double>(length_of(r));
        for (std::int64_t s = 0; s < c.source_steps; ++s)
          weights(r, s) = s < length_of(r) ? weights(r, s) / length : 0.0;
      }
      weights = weights.map([](double x) { return static_cast<double>(static_cast<float>(x)); });
      const auto operation = [&](Memory& at) {
        const Tensor d_scores = at.tensor(query.rows, c.source_steps);
        const Tensor d_query = at.tensor(query.rows, c.units);
        at->attention_backward(shape_in(at), score_in(at), at.tensor(query), at.tensor(keys),
                               at.tensor(memory), at.indices(lengths), at.tensor(weights),
                               at.tensor(d_context), d_scores, d_query);
        return Outputs{at.read(d_scores), at.read(d_query)};
      };
      const double error = static_cast<double>(c.depth + c.source_steps + 8) * fp32_roundoff;
      const auto depth = static_cast<double>(c.depth);
      // |d_context . memory| <= depth, and its weighted mean too; the weights sum to at most 1.
      expect_reference(operation, {weights.times(2 * depth * error),
                                   Values(query.rows, c.units, 4 * scale * depth * error)});
    }
}

TEST_P(Attention, MemoryBackward) {
  for (const AttentionCase& c : attention_cases)
    for (const Score of : {Score::plain, Score::scaled, Score::additive}) {
      if (c.search_rows > 0) continue;  // Only training has a backward pass.
      make_inputs(c, of);
      SCOPED_TRACE(testing::Message()
                   << c.sentences << " sentences, " << c.source_steps << " steps, " << query.rows
                   << " queries, " << c.units << " units, depth " << c.depth);
      Values weights = random_.values(query.rows, c.source_steps, 0, 1);
      Values d_scores = random_.values(query.rows, c.source_steps);
      for (std::int64_t r = 0; r < weights.rows; ++r)
        for (std::int64_t s = length_of(r); s < c.source_steps; ++s) weights(r, s) = d_scores(r, s) = 0;
      const auto backward = [&](bool absolute) {
        const auto value = [absolute](const Values& x) { return absolute ? x.abs() : x; };
        return [&, value](Memory& at) {
          const Tensor d_keys = at.tensor(keys.rows, c.units);
          const Tensor d_memory = at.tensor(memory.rows, c.depth);
          AttentionScore d_score;
          if (kind == Score::scaled) d_score.scale = at.tensor(Values(1, 1, 0.5));
          if (kind == Score::additive) d_score.v = at.tensor(Values(1, c.units, 0.5), Layout::contiguous);
          at->attention_memory_backward(shape_in(at), score_in(at), at.tensor(value(query)),
                                        at.tensor(value(keys)), at.indices(lengths), at.tensor(weights),
                                        at.tensor(value(d_scores)), at.tensor(value(d_context)), d_keys,
                                        d_memory, d_score);
          Outputs outputs = {at.read(d_keys), at.read(d_memory)};
          if (kind == Score::scaled) outputs.push_back(at.read(d_score.scale));
          if (kind == Score::additive) outputs.push_back(at.read(d_score.v));
          return outputs;
        };
      };
      std::vector<Values> bounds = on_reference(backward(true));
      const double roundings = static_cast<double>(c.target_steps + 4);
      bounds[0] = bounds[0].times(roundings * fp32_roundoff);
      bounds[1] = bounds[1].times(roundings * fp32_roundoff);
      if (kind == Score::scaled)
        bounds[2] =
            bounds[2].times(static_cast<double>(query.rows * c.source_steps + c.units) * fp32_roundoff);
      if (kind == Score::additive) {
        // No factor is above 1; a tanh has an error of several roundings.
        const auto steps = static_cast<double>(c.target_steps);
        const auto terms = static_cast<double>(query.rows * c.source_steps);
        bounds[0] = Values(keys.rows, c.units, steps * (steps + 16) * fp32_roundoff);
        bounds[2] = Values(1, c.units, terms * (terms + 16) * fp32_roundoff);
      }
      expect_reference(backward(false), bounds);
    }
}

TEST_P(BackendOperation, ScaledDirection) {
  for (const std::int64_t units : {1, 3, 17, 64, 129, 1000}) {
    SCOPED_TRACE(units);
    const Values v = random_.values(1, units, 0.5, 1), g = random_.values(1, 1, 1, 2);
    const Values d_out = random_.values(1, units), d_v = random_.values(1, units), d_g = random_.values(1, 1);
    const auto operation = [&](Memory& memory) {
      const Tensor out = memory.tensor(1, units), of_v = memory.tensor(d_v), of_g = memory.tensor(d_g);
      memory->scaled_direction(memory.tensor(v), memory.tensor(g), out);
      memory->scaled_direction_backward(memory.tensor(v), memory.tensor(g), memory.tensor(d_out), of_v, of_g);
      return Outputs{memory.read(out), memory.read(of_v), memory.read(of_g)};
    };
    // The length is at least 0.5, and the part of d_out along v at most the root of the units.
    const auto n = static_cast<double>(units);
    const double error = (n + 8) * 4 * std::sqrt(n) * fp32_roundoff;
    expect_reference(operation, {Values(1, units, error), Values(1, units, error), Values(1, 1, error)});
  }
}

TEST_P(BackendOperation, SoftmaxCrossEntropy) {
  for (const std::int64_t rows : {0, 1, 3, 64})
    for (const std::int64_t vocabulary : {1, 3, 17, 64, 129, 5003})
      for (const double smoothing : {0.0, 0.1})
        for (const bool gradient : {false, true}) {
          SCOPED_TRACE(testing::Message() << rows << "x" << vocabulary << " smoothing " << smoothing);
          const Values x = random_.values(rows, vocabulary, -10, 10);
          const auto targets = random_.integers(rows, 0, static_cast<std::int32_t>(vocabulary - 1));
          const auto operation = [&](Memory& memory) {
            const Tensor logits = memory.tensor(x);
            const Tensor sums = memory.sums({100, 0});
            memory->softmax_cross_entropy(logits, memory.indices(targets), smoothing,
                                          gradient ? logits : Tensor(), nullptr, sums);
            // Without a gradient, the logits are scratch memory afterwards.
            return Outputs{memory.read(sums), gradient ? memory.read(logits) : Values()};
          };
          const Values probabilities = on_reference([&](Memory& memory) {
                                         const Tensor logits = memory.tensor(x);
                                         memory->log_softmax(logits);
                                         return Outputs{memory.read(logits)};
                                       })
                                           .front()
                                           .map([](double logp) { return std::exp(logp); });
          // x - normaliser is rounded relative to the logits' magnitude; a blocked or pairwise sum of V terms
          // has less than 64 + sqrt(V) successive roundings.
          const double error = (64 + 2 * std::sqrt(static_cast<double>(vocabulary)) + 4 * 10) * fp32_roundoff;
          const Values of_gradient =
              probabilities.map([&](double p) { return error * p + 2 * fp32_roundoff; });
          expect_reference(operation, {Values(1, 2, static_cast<double>(rows) * 2 * error + 1e-10),
                                       gradient ? of_gradient : Values()});
        }
}

TEST_P(BackendOperation, SoftmaxOfExtremeLogits) {
  Values x(3, 129);
  for (std::int64_t v = 0; v < 129; ++v) {
    x(0, v) = v == 5 ? 30000 : -30000;
    x(1, v) = 1e30;
    x(2, v) = -static_cast<double>(v) * 50;
  }
  x = x.map([](double value) { return static_cast<double>(static_cast<float>(value)); });
  const auto operation = [&](Memory& memory) {
    const Tensor logits = memory.tensor(x);
    memory->softmax_cross_entropy(logits, memory.indices({5, 7, 0}), 0, logits, nullptr, memory.sums(2));
    return Outputs{memory.read(logits)};
  };
  expect_reference(operation, {Values(3, 129, 128 * fp32_roundoff)});
}

// Rows that only make a batch's number of them a usual one would change the loss and the gradients.
TEST_P(BackendOperation, RowsWithoutATargetHaveNoLoss) {
  for (const std::int64_t vocabulary : {1, 17, 64, 1027}) {
    SCOPED_TRACE(vocabulary);
    const Values x = random_.values(4, vocabulary, -10, 10);
    const auto operation = [&](Memory& memory) {
      const Tensor logits = memory.tensor(x), other = memory.tensor(x);
      const Tensor sums = memory.sums({100, 0}), same = memory.sums({100, 0});
      const Indices targets = memory.indices({-1, 0, -1, static_cast<std::int32_t>(vocabulary - 1)});
      memory->softmax_cross_entropy(logits, targets, 0.1, logits, nullptr, sums);
      memory->softmax_cross_entropy(other, targets, 0.1, {}, nullptr, same);
      for (const std::int64_t row : {0, 2})
        EXPECT_TRUE(close(memory.read(logits.row_range(row, 1)), Values(1, vocabulary), 0));
      EXPECT_TRUE(close(memory.read(same), memory.read(sums), 0));
      return Outputs{memory.read(sums), memory.read(logits)};
    };
    const double error = 512 * fp32_roundoff;
    expect_reference(operation, {Values(1, 2, 100 * error), Values(4, vocabulary, error)});
  }
}

TEST_P(BackendOperation, ANanLogitReachesTheLoss) {
  for (const std::int64_t place : {0, 5, 63, 128}) {
    Memory memory(*backend_, GetParam().layout);
    Values x(2, 129, 0.5);
    x(1, place) = std::numeric_limits<double>::quiet_NaN();
    const Tensor sums = memory.sums(2);
    const Tensor logits = memory.tensor(x);
    memory->softmax_cross_entropy(logits, memory.indices({3, 4}), 0.1, logits, nullptr, sums);
    EXPECT_TRUE(std::isnan(memory.read(sums)(0, 0))) << place;
    EXPECT_TRUE(std::isnan(memory.read(sums)(0, 1))) << place;
  }
}

TEST_P(BackendOperation, LogSoftmax) {
  for (const std::int64_t rows : {0, 1, 3, 64})
    for (const std::int64_t vocabulary : {1, 3, 17, 64, 129, 5003}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << vocabulary);
      const Values x = random_.values(rows, vocabulary, -10, 10);
      const auto operation = [&](Memory& memory) {
        const Tensor logits = memory.tensor(x);
        memory->log_softmax(logits);
        return Outputs{memory.read(logits)};
      };
      const double error = (64 + 2 * std::sqrt(static_cast<double>(vocabulary)) + 4 * 10) * fp32_roundoff;
      expect_reference(operation, {Values(rows, vocabulary, error)});
    }
}

// A search would follow other words than the most probable ones.
TEST_P(BackendOperation, BestLogSoftmax) {
  for (const std::int64_t rows : {0, 1, 3, 64})
    for (const std::int64_t vocabulary : {1, 3, 17, 64, 129, 5003})
      for (const std::int64_t count : {0, 1, 7, 130}) {
        if (count > vocabulary) continue;
        SCOPED_TRACE(testing::Message() << count << " of " << rows << "x" << vocabulary);
        // Quarters, so that there are many ties and that no rounding makes others.
        const Values x = random_.values(rows, vocabulary, -10, 10).map([](double value) {
          return std::round(4 * value) / 4;
        });
        const auto operation = [&](Memory& memory) {
          const Tensor logits = memory.tensor(x);
          const Tensor best = memory.sums(rows * (2 * count + 3)).reshaped(rows, 2 * count + 3);
          // In one call where a backend wants all columns at once, in several elsewhere.
          const std::int64_t block = memory->best_block().columns < (1 << 20) ? 50 : vocabulary;
          for (std::int64_t first = 0; first < vocabulary; first += block) {
            const Tensor part = logits.col_range(first, std::min(block, vocabulary - first));
            memory->best_log_softmax(part, first, vocabulary, static_cast<std::int32_t>(vocabulary / 2),
                                     best);
          }
          return Outputs{memory.read(best.col_range(0, count)), memory.read(best.col_range(count, count + 1)),
                         memory.read(logits)};
        };
        const double error = (64 + 2 * std::sqrt(static_cast<double>(vocabulary)) + 4 * 10) * fp32_roundoff;
        expect_reference(operation,
                         {Values(rows, count), Values(rows, count + 1, error), Values(rows, vocabulary)});
      }
}

/// Numbers that are exact in fp32, with minus infinity in every fifth column and, if there are more than
/// three, in the first and the last.
Values with_impossible_columns(Values x) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t v = 0; v < x.cols; ++v)
      if (v % 5 == 4 || (x.cols > 3 && (v == 0 || v == x.cols - 1)))
        x(r, v) = -std::numeric_limits<double>::infinity();
  return x;
}

// Models that translate together would be weighed wrongly, or a word that is impossible to one would be so
// to all.
TEST_P(BackendOperation, LogAddExp) {
  for (const std::int64_t rows : {0, 1, 3, 64})
    for (const std::int64_t cols : {1, 3, 17, 64, 129, 5003}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << cols);
      const Values x = with_impossible_columns(random_.values(rows, cols, -30, 0));
      Values y = random_.values(rows, cols, -30, 0);
      for (std::size_t i = 0; i < y.data.size(); ++i) {
        if (i % 3 == 0) y.data[i] = -std::numeric_limits<double>::infinity();
        if (i % 7 == 0) y.data[i] = x.data[i];
      }
      Values expected = x;
      for (std::size_t i = 0; i < y.data.size(); ++i)
        expected.data[i] = std::max(std::log(std::exp(x.data[i]) + std::exp(y.data[i])), -1e30);
      for (Backend* const backend : {backend_.get(), reference_.get()}) {
        Memory memory(*backend, GetParam().layout);
        const Tensor from = memory.tensor(y), to = memory.tensor(x);
        memory->log_add_exp(from, to);
        const Values found = memory.read(to).map([](double value) { return std::max(value, -1e30); });
        EXPECT_TRUE(close(found, expected, 64 * fp32_roundoff)) << backend->name();
      }
    }
}

// Samples would not be the model's, or differ between backends.
TEST_P(BackendOperation, DrawColumns) {
  for (const std::int64_t rows : {0, 1, 17})
    for (const std::int64_t vocabulary : {1, 3, 17, 64, 129, 1025, 5003})
      for (const double temperature : {0.5, 1.0, 1e-6}) {
        SCOPED_TRACE(testing::Message() << rows << "x" << vocabulary << " temperature " << temperature);
        // Quarters: several columns are the most probable ones.
        const Values x =
            with_impossible_columns(random_.values(rows, vocabulary, -10, 0).map([](double value) {
              return std::round(4 * value) / 4;
            }));
        const std::int64_t excluded = vocabulary > 3 ? vocabulary / 2 : -1;
        std::vector<double> numbers = random_.values(1, rows, 0, 0.999).data;
        for (std::size_t r = 0; r < numbers.size(); r += 3) numbers[r] = r % 2 == 0 ? 0.0 : 1 - 0x1p-53;
        Values expected(rows, 2);
        for (std::int64_t r = 0; r < rows; ++r) {
          double largest = -std::numeric_limits<double>::infinity(), sum = 0;
          for (std::int64_t v = 0; v < vocabulary; ++v)
            if (v != excluded) largest = std::max(largest, x(r, v));
          std::vector<double> sums;
          for (std::int64_t v = 0; v < vocabulary; ++v)
            sums.push_back(sum += v == excluded ? 0 : std::exp((x(r, v) - largest) / temperature));
          const auto found = std::ranges::upper_bound(sums, numbers[static_cast<std::size_t>(r)] * sum);
          const auto column = std::min(found, std::ranges::lower_bound(sums, sum)) - sums.begin();
          expected(r, 0) = static_cast<double>(column);
          expected(r, 1) = x(r, column);
        }
        for (Backend* const backend : {backend_.get(), reference_.get()}) {
          Memory memory(*backend, GetParam().layout);
          const Tensor in_memory = memory.sums(rows), drawn = memory.sums(3 * rows).reshaped(rows, 3);
          memory->upload_bytes(in_memory.data, std::as_bytes(std::span(numbers)));
          memory->draw_columns(memory.tensor(x), in_memory.as<double>(), temperature,
                               static_cast<std::int32_t>(excluded), drawn.col_range(0, 2));
          EXPECT_TRUE(close(memory.read(drawn.col_range(0, 2)), expected, 0)) << backend->name();
          EXPECT_TRUE(close(memory.read(drawn.col_range(2, 1)), Values(rows, 1), 0)) << backend->name();
        }
      }
}

// A model that has diverged would end the program.
TEST_P(BackendOperation, DrawsAColumnOfNans) {
  Memory memory(*backend_, GetParam().layout);
  const Tensor drawn = memory.sums(2);
  memory->draw_columns(memory.tensor(Values(1, 129, std::numeric_limits<double>::quiet_NaN())),
                       memory.sums(1).as<double>(), 1.0, 1, drawn);
  EXPECT_EQ(memory.read(drawn)(0, 0), 0);
  EXPECT_TRUE(std::isnan(memory.read(drawn)(0, 1)));
}

TEST_P(BackendOperation, OptimisersTakeNoRows) {
  Memory memory(*backend_, GetParam().layout);
  const Tensor none = memory.tensor(Values(0, 3));
  const Tensor sums = memory.sums(2);
  for (const UpdateRule rule : {UpdateRule::sgd, UpdateRule::adam, UpdateRule::lamb_step})
    memory->update(rule, {none, none, none, none}, {});
  for (const UpdateRule rule : {UpdateRule::norms, UpdateRule::lamb_moments})
    memory->update(rule, {none, none, none, none, sums}, {});
  EXPECT_TRUE(close(memory.read(sums), Values(1, 2), 0));
}

std::vector<OperationCase> operation_cases() {
  std::vector<OperationCase> cases;
  for (const BackendCase& backend : fp32_backends())
    for (const Layout layout : {Layout::contiguous, Layout::strided, Layout::aligned})
      cases.push_back({backend, layout});
  return cases;
}
std::string case_name(const testing::TestParamInfo<OperationCase>& test) {
  return test.param.backend.name + name_of(test.param.layout);
}
INSTANTIATE_TEST_SUITE_P(Sizes, BackendOperation, testing::ValuesIn(operation_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Sizes, Attention, testing::ValuesIn(operation_cases()), case_name);

}  // namespace
}  // namespace nmt::test
