// The reference backend against finite differences and hand-written formulas. Otherwise the oracle for every
// other backend would be wrong.

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

class ReferenceGradient : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_reference_backend();
  Memory memory_{*backend_};
  Random random_{17};
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(TestSupport, NanAndInfinityAreNeverClose) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const Values one(1, 1, 1.0);
  EXPECT_TRUE(close(one, Values(1, 1, 1.5), 0.5));
  EXPECT_FALSE(close(one, Values(1, 1, 1.5), 0.4));
  EXPECT_FALSE(close(Values(1, 1, nan), one, 1e9));
  EXPECT_FALSE(close(one, Values(1, 1, nan), 1e9));
  EXPECT_FALSE(close(Values(1, 1, nan), Values(1, 1, nan), 1e9));
  EXPECT_FALSE(close(Values(1, 1, infinity), Values(1, 1, infinity), 1e9));
  EXPECT_FALSE(close(one, one, nan));
  EXPECT_FALSE(close(one, one, infinity));
  EXPECT_FALSE(close(Values(1, 2), Values(2, 1), 1.0));
}

TEST_F(ReferenceGradient, GemmInEveryTransposition) {
  const auto flip = [](Transpose t) { return t == Transpose::yes ? Transpose::no : Transpose::yes; };
  for (const Transpose ta : {Transpose::no, Transpose::yes})
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      const std::int64_t m = 3, n = 4, k = 5;
      const Values a_values = ta == Transpose::yes ? random_.values(k, m) : random_.values(m, k);
      const Values b_values = tb == Transpose::yes ? random_.values(n, k) : random_.values(k, n);
      const Tensor a = memory_.tensor(a_values);
      const Tensor b = memory_.tensor(b_values);
      const Tensor c = memory_.tensor(m, n);
      const Values weights = random_.values(m, n);
      const auto loss = [&] {
        memory_->gemm(ta, tb, a, b, false, c);
        return dot(weights, memory_.read(c));
      };
      const Tensor d_c = memory_.tensor(weights);
      const Tensor d_a = memory_.tensor(a.rows, a.cols);
      const Tensor d_b = memory_.tensor(b.rows, b.cols);
      if (ta == Transpose::no)
        memory_->gemm(Transpose::no, flip(tb), d_c, b, false, d_a);
      else
        memory_->gemm(tb, Transpose::yes, b, d_c, false, d_a);
      if (tb == Transpose::no)
        memory_->gemm(flip(ta), Transpose::no, a, d_c, false, d_b);
      else
        memory_->gemm(Transpose::yes, ta, d_c, a, false, d_b);
      expect_gradient("a", a, memory_.read(d_a), loss);
      expect_gradient("b", b, memory_.read(d_b), loss);

      Values product(m, n);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          for (std::int64_t l = 0; l < k; ++l)
            product(i, j) += (ta == Transpose::yes ? a_values(l, i) : a_values(i, l)) *
                             (tb == Transpose::yes ? b_values(j, l) : b_values(l, j));
      memory_->gemm(ta, tb, a, b, false, c);
      EXPECT_TRUE(close(memory_.read(c), product, 1e-14));
      memory_->gemm(ta, tb, a, b, true, c);
      EXPECT_TRUE(close(memory_.read(c), product.times(2), 1e-14));
    }
}

TEST_F(ReferenceGradient, BiasIsTheColumnSumsAddedUp) {
  const Tensor bias = memory_.tensor(random_.values(1, 5));
  const Values weights = random_.values(4, 5);
  const auto loss = [&] {
    const Values b = memory_.read(bias);
    double sum = 0;
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < 5; ++c) sum += weights(r, c) * std::sin(b(0, c));
    return sum;
  };
  Values d_y = weights;
  const Values b = memory_.read(bias);
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 5; ++c) d_y(r, c) *= std::cos(b(0, c));
  const Tensor d_bias = memory_.tensor(Values(1, 5, 2));
  memory_->add_column_sums(memory_.tensor(d_y), d_bias);
  expect_gradient("bias", bias, memory_.read(d_bias).map([](double g) { return g - 2; }), loss);
}

TEST_F(ReferenceGradient, EmbeddingWithRepeatedIds) {
  const Tensor table = memory_.tensor(random_.values(6, 3));
  const Indices ids = memory_.indices({4, 0, 4, 5, 4});
  const Tensor out = memory_.tensor(5, 3);
  const Values weights = random_.values(5, 3);
  const auto loss = [&] {
    memory_->embedding_forward(table, ids, out);
    return dot(weights, memory_.read(out));
  };
  const Tensor d_table = memory_.tensor(Values(6, 3));
  memory_->embedding_backward(memory_.tensor(weights), ids, d_table);
  expect_gradient("table", table, memory_.read(d_table), loss);
}

TEST_F(ReferenceGradient, DropoutWithAFixedKey) {
  const Tensor x = memory_.tensor(random_.values(6, 7));
  const Tensor y = memory_.tensor(6, 7);
  const Indices samples = memory_.indices({11, 3, 8});
  const PhiloxKey* const key = memory_.key({1, 2, 3});
  const Values weights = random_.values(6, 7);
  const auto loss = [&] {
    memory_->dropout(x, y, key, 0.4, samples, 5, 8);
    return dot(weights, memory_.read(y));
  };
  const Tensor d_x = memory_.tensor(weights);
  memory_->dropout(d_x, d_x, key, 0.4, samples, 5, 8);
  expect_gradient("x", x, memory_.read(d_x), loss);
}

TEST_F(ReferenceGradient, LstmCellIsTensorFlows) {
  const std::int64_t units = 3;
  const Values pre = random_.values(2, 4 * units, -2, 2);
  const Values bias = random_.values(1, 4 * units);
  const Values c_prev = random_.values(2, units);
  Backend::LstmStep step;
  step.gates = memory_.tensor(pre);
  step.bias = memory_.tensor(bias);
  step.c_prev = memory_.tensor(c_prev);
  step.h_prev = memory_.tensor(random_.values(2, units));
  step.c = memory_.tensor(2, units);
  step.h = memory_.tensor(2, units);
  step.tanh_c = memory_.tensor(2, units);
  step.forget_bias = 0.75;
  memory_->lstm_cell_forward(step);
  Values c(2, units), h(2, units);
  for (std::int64_t r = 0; r < 2; ++r)
    for (std::int64_t u = 0; u < units; ++u) {
      const double i = pre(r, u) + bias(0, u);
      const double j = pre(r, units + u) + bias(0, units + u);
      const double f = pre(r, 2 * units + u) + bias(0, 2 * units + u);
      const double o = pre(r, 3 * units + u) + bias(0, 3 * units + u);
      c(r, u) = c_prev(r, u) * sigmoid(f + 0.75) + sigmoid(i) * std::tanh(j);
      h(r, u) = sigmoid(o) * std::tanh(c(r, u));
    }
  EXPECT_TRUE(close(memory_.read(step.c), c, 1e-14));
  EXPECT_TRUE(close(memory_.read(step.h), h, 1e-14));
}

struct LstmCase {
  bool masked;
  bool has_output;
  bool in_place;  ///< d_h_prev is d_h.
};

class ReferenceLstmGradient : public ReferenceGradient, public testing::WithParamInterface<LstmCase> {};

TEST_P(ReferenceLstmGradient, MatchesFiniteDifferences) {
  const auto [masked, has_output, in_place] = GetParam();
  const std::int64_t batch = 4, units = 3;
  const Tensor pre = memory_.tensor(random_.values(batch, 4 * units, -2, 2));
  const Values w_c = random_.values(batch, units);
  const Values w_h = random_.values(batch, units);
  const Values w_output = random_.values(batch, units);

  Backend::LstmStep step;
  step.gates = memory_.tensor(batch, 4 * units);
  step.bias = memory_.tensor(random_.values(1, 4 * units));
  step.c_prev = memory_.tensor(random_.values(batch, units));
  step.h_prev = memory_.tensor(random_.values(batch, units));
  step.c = memory_.tensor(batch, units);
  step.h = memory_.tensor(batch, units);
  step.tanh_c = memory_.tensor(batch, units);
  if (has_output) step.output = memory_.tensor(batch, units);
  if (masked) step.lengths = memory_.indices({6, 2, 3, 1});
  step.step = 2;
  const auto loss = [&] {
    memory_->copy(pre, step.gates);
    memory_->lstm_cell_forward(step);
    double sum = dot(w_c, memory_.read(step.c)) + dot(w_h, memory_.read(step.h));
    if (has_output) sum += dot(w_output, memory_.read(step.output));
    return sum;
  };

  loss();
  if (has_output) {
    const Values output = memory_.read(step.output);
    const Values h = memory_.read(step.h);
    for (std::int64_t r = 0; r < batch; ++r) {
      const bool done = masked && (r == 1 || r == 3);
      for (std::int64_t u = 0; u < units; ++u) EXPECT_EQ(output(r, u), done ? 0.0 : h(r, u));
    }
  }
  Backend::LstmStepBackward backward;
  backward.gates = step.gates;
  backward.c_prev = step.c_prev;
  backward.tanh_c = step.tanh_c;
  if (has_output) backward.d_output = memory_.tensor(w_output);
  backward.d_h = memory_.tensor(w_h);
  backward.d_h_prev = in_place ? backward.d_h : memory_.tensor(batch, units);
  backward.d_c = memory_.tensor(w_c);
  backward.lengths = step.lengths;
  backward.step = step.step;
  memory_->lstm_cell_backward(backward);
  const Values d_gates = memory_.read(backward.gates);
  const Values d_c_prev = memory_.read(backward.d_c);
  const Values d_h_prev = memory_.read(backward.d_h_prev);
  const Tensor d_bias = memory_.tensor(Values(1, 4 * units));
  memory_->add_column_sums(backward.gates, d_bias);

  expect_gradient("gates", pre, d_gates, loss);
  expect_gradient("bias", step.bias, memory_.read(d_bias), loss);
  expect_gradient("c_prev", step.c_prev, d_c_prev, loss);
  if (masked)
    expect_gradient("h_prev", step.h_prev, d_h_prev, loss);
  else
    EXPECT_EQ(d_h_prev.largest(), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Paths, ReferenceLstmGradient,
                         testing::Values(LstmCase{false, false, false}, LstmCase{false, true, true},
                                         LstmCase{true, false, true}, LstmCase{true, true, false}),
                         [](const auto& test) {
                           return std::string(test.param.masked ? "Masked" : "Unmasked") +
                                  (test.param.has_output ? "Output" : "NoOutput") +
                                  (test.param.in_place ? "InPlace" : "OutOfPlace");
                         });

enum class Score { luong, scaled, additive };

class ReferenceAttentionGradient : public ReferenceGradient, public testing::WithParamInterface<Score> {};

TEST_P(ReferenceAttentionGradient, MatchesFiniteDifferences) {
  const bool scaled = GetParam() == Score::scaled, additive = GetParam() == Score::additive;
  const std::int64_t sentences = 3, source_steps = 4, target_steps = 2, units = 3, depth = 5;
  const std::int64_t rows = target_steps * sentences;
  const AttentionShape shape{sentences, source_steps};
  const Tensor query = memory_.tensor(random_.values(rows, units));
  const Tensor keys = memory_.tensor(random_.values(source_steps * sentences, units));
  const Tensor memory = memory_.tensor(random_.values(source_steps * sentences, depth));
  const Indices lengths = memory_.indices({4, 1, 3});
  AttentionScore score, d_score;
  if (scaled) score.scale = memory_.tensor(Values(1, 1, 1.3));
  if (additive) score.v = memory_.tensor(random_.values(1, units));
  const Tensor weights = memory_.tensor(rows, source_steps);
  const Tensor context = memory_.tensor(rows, depth);
  const Values w = random_.values(rows, depth);
  const auto loss = [&] {
    memory_->attention_forward(shape, score, query, keys, memory, lengths, weights, context);
    return dot(w, memory_.read(context));
  };

  loss();
  const Tensor d_context = memory_.tensor(w);
  const Tensor d_scores = memory_.tensor(rows, source_steps);
  const Tensor d_query = memory_.tensor(rows, units);
  // One target step at a time, like a decoder with input feeding.
  for (std::int64_t t = 0; t < target_steps; ++t)
    memory_->attention_backward(
        shape, score, query.row_range(t * sentences, sentences), keys, memory, lengths,
        weights.row_range(t * sentences, sentences), d_context.row_range(t * sentences, sentences),
        d_scores.row_range(t * sentences, sentences), d_query.row_range(t * sentences, sentences));
  const Tensor d_keys = memory_.tensor(keys.rows, units);
  const Tensor d_memory = memory_.tensor(memory.rows, depth);
  if (scaled) d_score.scale = memory_.tensor(Values(1, 1, 0));
  if (additive) d_score.v = memory_.tensor(Values(1, units, 0));
  memory_->attention_memory_backward(shape, score, query, keys, lengths, weights, d_scores, d_context, d_keys,
                                     d_memory, d_score);
  expect_gradient("query", query, memory_.read(d_query), loss);
  expect_gradient("keys", keys, memory_.read(d_keys), loss);
  expect_gradient("memory", memory, memory_.read(d_memory), loss);
  if (GetParam() == Score::luong) return;
  const Tensor parameter = scaled ? score.scale : score.v, gradient = scaled ? d_score.scale : d_score.v;
  const Values once = memory_.read(gradient);
  expect_gradient("score", parameter, once, loss);
  memory_->attention_memory_backward(shape, score, query, keys, lengths, weights, d_scores, d_context, d_keys,
                                     d_memory, d_score);
  EXPECT_TRUE(close(memory_.read(gradient), once.times(2), 1e-12)) << "the score's gradient is added up";
}

INSTANTIATE_TEST_SUITE_P(Scores, ReferenceAttentionGradient,
                         testing::Values(Score::luong, Score::scaled, Score::additive), [](const auto& test) {
                           return test.param == Score::luong    ? "Luong"
                                  : test.param == Score::scaled ? "ScaledLuong"
                                                                : "Additive";
                         });

TEST_F(ReferenceGradient, AttentionOfABeamIsThatOfItsSentence) {
  const std::int64_t sentences = 2, width = 3, source_steps = 3, units = 2, depth = 2;
  const std::vector<std::int32_t> lengths = {2, 3};
  const Values q = random_.values(sentences * width, units);
  const Values k = random_.values(source_steps * sentences, units);
  const Values m = random_.values(source_steps * sentences, depth);
  const Tensor weights = memory_.tensor(sentences * width, source_steps);
  const Tensor context = memory_.tensor(sentences * width, depth);
  const Indices sentence_of_row = memory_.indices({0, 0, 0, 1, 1, 1});
  memory_->attention_forward({sentences, source_steps, sentence_of_row}, {}, memory_.tensor(q),
                             memory_.tensor(k), memory_.tensor(m), memory_.indices(lengths), weights,
                             context);
  Values expected_weights(sentences * width, source_steps), expected_context(sentences * width, depth);
  for (std::int64_t r = 0; r < sentences * width; ++r) {
    const std::int64_t sentence = r / width;
    const std::int64_t length = lengths[static_cast<std::size_t>(sentence)];
    double sum = 0;
    for (std::int64_t s = 0; s < length; ++s) {
      double score = 0;
      for (std::int64_t u = 0; u < units; ++u) score += q(r, u) * k(s * sentences + sentence, u);
      sum += expected_weights(r, s) = std::exp(score);
    }
    for (std::int64_t s = 0; s < length; ++s) {
      expected_weights(r, s) /= sum;
      for (std::int64_t u = 0; u < depth; ++u)
        expected_context(r, u) += expected_weights(r, s) * m(s * sentences + sentence, u);
    }
  }
  EXPECT_TRUE(close(memory_.read(weights), expected_weights, 1e-14));
  EXPECT_TRUE(close(memory_.read(context), expected_context, 1e-14));
}

TEST_F(ReferenceGradient, ScaledDirection) {
  const Tensor v = memory_.tensor(random_.values(1, 4));
  const Tensor g = memory_.tensor(Values(1, 1, 0.7));
  const Tensor out = memory_.tensor(1, 4);
  const Values w = random_.values(1, 4);
  const auto loss = [&] {
    memory_->scaled_direction(v, g, out);
    return dot(w, memory_.read(out));
  };
  loss();
  EXPECT_NEAR(dot(memory_.read(out), memory_.read(out)), 0.49, 1e-14);
  const Tensor d_v = memory_.tensor(Values(1, 4)), d_g = memory_.tensor(Values(1, 1));
  memory_->scaled_direction_backward(v, g, memory_.tensor(w), d_v, d_g);
  expect_gradient("v", v, memory_.read(d_v), loss);
  expect_gradient("g", g, memory_.read(d_g), loss);
}

class ReferenceCrossEntropyGradient : public ReferenceGradient, public testing::WithParamInterface<double> {};

TEST_P(ReferenceCrossEntropyGradient, MatchesFiniteDifferences) {
  const double smoothing = GetParam();
  const Values values = random_.values(3, 5, -2, 2);
  const Tensor logits = memory_.tensor(values);
  const Indices targets = memory_.indices({4, 0, 4});
  const auto sums = [&] {
    const Tensor result = memory_.sums(2);
    memory_->softmax_cross_entropy(memory_.tensor(memory_.read(logits)), targets, smoothing, {}, nullptr,
                                   result);
    return memory_.read(result);
  };
  const Tensor gradient = memory_.tensor(values);
  const Tensor total = memory_.sums(2);
  memory_->softmax_cross_entropy(gradient, targets, smoothing, gradient, nullptr, total);
  expect_gradient("logits", logits, memory_.read(gradient), [&] { return sums()(0, 1); });
  EXPECT_TRUE(close(memory_.read(total), sums(), 1e-14));

  double loss = 0, smoothed = 0;
  const std::vector<std::int64_t> wanted = {4, 0, 4};
  for (std::int64_t r = 0; r < 3; ++r) {
    double sum = 0;
    for (std::int64_t v = 0; v < 5; ++v) sum += std::exp(values(r, v));
    const auto cost = [&](std::int64_t v) { return -std::log(std::exp(values(r, v)) / sum); };
    loss += cost(wanted[static_cast<std::size_t>(r)]);
    smoothed += (1 - smoothing) * cost(wanted[static_cast<std::size_t>(r)]);
    for (std::int64_t v = 0; v < 5; ++v) smoothed += smoothing / 5 * cost(v);
  }
  EXPECT_NEAR(sums()(0, 0), loss, 1e-13);
  EXPECT_NEAR(sums()(0, 1), smoothed, 1e-13);
  memory_->softmax_cross_entropy(logits, targets, smoothing, {}, nullptr, total);
  EXPECT_NEAR(memory_.read(total)(0, 0), 2 * loss, 1e-13) << "sums are added to";
}

INSTANTIATE_TEST_SUITE_P(Smoothing, ReferenceCrossEntropyGradient, testing::Values(0.0, 0.1),
                         [](const auto& test) { return test.param > 0 ? "Smoothed" : "Plain"; });

}  // namespace
}  // namespace nmt::test
