// The model's structure against tensorflow/nmt's equations, implemented here for one sentence at a time,
// without batches, padding or masks. Otherwise the trainer would train another model than its flags name,
// with correct gradients.

#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

using Vector = std::vector<double>;

struct State {
  Vector h, c;
};

class PlainModel {
 public:
  PlainModel(TestModel& model, const ModelShape& shape) : model_(model), shape_(shape) {}

  /// Sum of -log p over the target's words and </s>.
  double negative_log_likelihood(const std::vector<std::int32_t>& source,
                                 const std::vector<std::int32_t>& target) {
    encode(source);
    const auto layers = static_cast<std::size_t>(shape_.decoder_layers);
    const auto units = static_cast<std::size_t>(shape_.units);
    std::vector<State> states(layers, State{Vector(units), Vector(units)});
    const bool attends = shape_.attention != AttentionKind::none;
    if (shape_.encoder_layers == shape_.decoder_layers && (shape_.pass_hidden_state || !attends))
      states = final_states_;
    const std::string table = shape_.share_vocabulary ? "embedding/shared" : "embedding/decoder";
    Vector attention(units);
    double nll = 0;
    std::int32_t word = 1;
    for (std::size_t t = 0; t <= target.size(); ++t) {
      Vector x = row(parameter(table), word);
      if (attends) x = join(x, attention);
      for (std::size_t l = 0; l < layers; ++l) {
        states[l] = cell("decoder/lstm_" + std::to_string(l), x, states[l]);
        x = states[l].h;
      }
      if (attends) {
        attention = times(join(x, context(x)), parameter("attention/output_kernel"));
        if (shape_.output_attention) x = attention;
      }
      const Vector logits = times(parameter("projection/kernel"), x);
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      word = t < target.size() ? target[t] : 2;
      nll += std::log(sum) - logits[static_cast<std::size_t>(word)];
    }
    return nll;
  }

 private:
  Values parameter(const std::string& name) {
    ParameterSet& parameters = model_->parameters();
    return model_.memory().read(parameters.value(parameters.layout().index_of(name)));
  }
  static Vector row(const Values& x, std::int64_t r) {
    Vector result;
    for (std::int64_t c = 0; c < x.cols; ++c) result.push_back(x(r, c));
    return result;
  }
  static Vector join(Vector a, const Vector& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static Vector times(const Vector& x, const Values& matrix) {
    EXPECT_EQ(static_cast<std::int64_t>(x.size()), matrix.rows);
    Vector y(static_cast<std::size_t>(matrix.cols));
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < y.size(); ++j)
        y[j] += x[i] * matrix(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
    return y;
  }
  static Vector times(const Values& matrix, const Vector& x) {
    EXPECT_EQ(static_cast<std::int64_t>(x.size()), matrix.cols);
    Vector y(static_cast<std::size_t>(matrix.rows));
    for (std::size_t i = 0; i < y.size(); ++i)
      for (std::size_t j = 0; j < x.size(); ++j)
        y[i] += matrix(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)) * x[j];
    return y;
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  State cell(const std::string& name, const Vector& x, const State& state) {
    const Vector gates = times(join(x, state.h), parameter(name + "/kernel"));
    const Values bias = parameter(name + "/bias");
    const std::size_t units = state.h.size();
    const auto gate = [&](std::size_t which, std::size_t u) {
      return gates[which * units + u] + bias(0, static_cast<std::int64_t>(which * units + u));
    };
    State next = state;
    for (std::size_t u = 0; u < units; ++u) {
      next.c[u] =
          state.c[u] * sigmoid(gate(2, u) + shape_.forget_bias) + sigmoid(gate(0, u)) * std::tanh(gate(1, u));
      next.h[u] = sigmoid(gate(3, u)) * std::tanh(next.c[u]);
    }
    return next;
  }

  /// Runs a stack of layers over x; x becomes the top layer's outputs.
  std::vector<State> run_stack(const std::string& prefix, int layers, std::vector<Vector>& x) {
    const auto units = static_cast<std::size_t>(shape_.units);
    std::vector<State> states;
    for (int l = 0; l < layers; ++l) {
      State state{Vector(units), Vector(units)};
      for (Vector& step : x) {
        state = cell(prefix + "lstm_" + std::to_string(l), step, state);
        step = state.h;
      }
      states.push_back(state);
    }
    return states;
  }

  void encode(const std::vector<std::int32_t>& source) {
    const Values table = parameter(shape_.share_vocabulary ? "embedding/shared" : "embedding/encoder");
    memory_.clear();
    for (const std::int32_t word : source) memory_.push_back(row(table, word));
    if (shape_.encoder == EncoderType::uni) {
      final_states_ = run_stack("encoder/", shape_.encoder_layers, memory_);
      return;
    }
    std::vector<Vector> backward(memory_.rbegin(), memory_.rend());
    const std::vector<State> fw = run_stack("encoder/fw/", shape_.encoder_layers / 2, memory_);
    const std::vector<State> bw = run_stack("encoder/bw/", shape_.encoder_layers / 2, backward);
    std::reverse(backward.begin(), backward.end());
    for (std::size_t s = 0; s < memory_.size(); ++s) memory_[s] = join(memory_[s], backward[s]);
    final_states_.clear();
    for (std::size_t l = 0; l < fw.size(); ++l) {
      final_states_.push_back(fw[l]);
      final_states_.push_back(bw[l]);
    }
  }

  Vector context(const Vector& query) {
    const Values kernel = parameter("attention/memory_kernel");
    const double scale =
        shape_.attention == AttentionKind::scaled_luong ? parameter("attention/scale")(0, 0) : 1.0;
    Vector weights, result(memory_.front().size());
    double sum = 0;
    for (const Vector& step : memory_) {
      const Vector key = times(step, kernel);
      double score = 0;
      for (std::size_t u = 0; u < key.size(); ++u) score += key[u] * query[u];
      weights.push_back(std::exp(scale * score));
      sum += weights.back();
    }
    for (std::size_t s = 0; s < memory_.size(); ++s)
      for (std::size_t u = 0; u < result.size(); ++u) result[u] += weights[s] / sum * memory_[s][u];
    return result;
  }

  TestModel& model_;
  ModelShape shape_;
  std::vector<Vector> memory_;
  std::vector<State> final_states_;
};

class ModelForward : public testing::TestWithParam<ModelCase> {};

TEST_P(ModelForward, IsTensorFlowNmts) {
  const ModelShape& shape = GetParam().shape;
  TestModel model(make_reference_backend(), shape, small_limits());
  const Corpus corpus = small_corpus();
  PlainModel plain(model, shape);
  double expected = 0;
  for (std::size_t i = 0; i < corpus.sources.size(); ++i)
    expected += plain.negative_log_likelihood(corpus.sources[i], corpus.targets[i]);
  const Batch batch(corpus, 0, corpus.sources.size());
  EXPECT_NEAR(model->evaluate(batch.view).negative_log_likelihood, expected, 1e-11);
}

/// The models that `PlainModel` knows. The others are compared with PyTorch's by torch_parity.py.
std::vector<ModelCase> plain_cases() {
  std::vector<ModelCase> cases = model_cases();
  std::erase_if(cases, [](const ModelCase& c) {
    const ModelShape& s = c.shape;
    return s.unit != UnitType::lstm || s.encoder == EncoderType::gnmt || s.residual || s.tie_output ||
           s.language_model || s.source_embedding != s.units ||
           s.architecture != AttentionArchitecture::standard || s.attention == AttentionKind::bahdanau ||
           s.attention == AttentionKind::normed_bahdanau;
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, ModelForward, testing::ValuesIn(plain_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nmt::test
