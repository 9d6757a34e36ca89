// The whole model: gradients against finite differences, the CPU backend against the reference, and
// properties that data-parallel training needs (gradients of batches add up, parameters report when they are
// ready). Otherwise models would train in a wrong direction, or depend on the number of ranks.

#include <set>

#include "ddl/error.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

class ModelGradient : public testing::TestWithParam<ModelCase> {
 protected:
  // A NAS cell hands on little of a gradient, unless its weights are large.
  TestModel model_{make_reference_backend(), GetParam().shape, small_limits(),
                   GetParam().shape.unit == UnitType::nas ? 1.6 : 0.8};
  const Corpus corpus_ = small_corpus();
};

TEST_P(ModelGradient, MatchesFiniteDifferences) {
  const Batch batch(corpus_, 0, 3);
  model_.run(batch.view, GetParam());
  const std::vector<Values> gradients = model_.gradients();
  const auto loss = [&] { return model_.run(batch.view, GetParam()).smoothed; };
  // These have kinks, or large higher derivatives.
  const UnitType unit = GetParam().shape.unit;
  const double difference = unit == UnitType::nas || unit == UnitType::layer_norm_lstm ? 1e-4 : 1e-3;
  Random random(7);
  for (std::size_t i = 0; i < model_.count(); ++i) {
    SCOPED_TRACE(model_.name(i));
    const Values& gradient = gradients[i];
    const double largest = gradient.largest();
    EXPECT_GT(largest, 1e-6) << "the loss does not depend on it";
    const auto size = static_cast<std::int32_t>(gradient.data.size());
    std::vector<std::int32_t> entries = random.integers(std::min(size, 10), 0, size - 1);
    for (std::int32_t e = 0; e < size; ++e)
      if (std::abs(gradient.data[static_cast<std::size_t>(e)]) == largest) entries.push_back(e);
    double* const values = model_->parameters().value(i).as<double>();
    for (const std::int32_t e : entries) {
      const double numeric = finite_difference(values[e], loss, difference);
      EXPECT_TRUE(close(Values(1, 1, gradient.data[static_cast<std::size_t>(e)]), Values(1, 1, numeric),
                        1e-7 * std::abs(numeric) + 1e-9 * largest + 1e-10))
          << "entry " << e;
    }
  }
}

TEST_P(ModelGradient, HalvesOfABatchAddUpToTheWhole) {
  const Batch whole(corpus_, 0, 4);
  const BatchLoss whole_loss = model_.run(whole.view, GetParam());
  const std::vector<Values> expected = model_.gradients();
  BatchLoss sum;
  std::vector<Values> gradients;
  for (const std::size_t begin : {0u, 2u}) {
    const Batch half(corpus_, begin, begin + 2);
    const BatchLoss loss = model_.run(half.view, GetParam());
    sum.negative_log_likelihood += loss.negative_log_likelihood;
    sum.smoothed += loss.smoothed;
    sum.target_tokens += loss.target_tokens;
    const std::vector<Values> part = model_.gradients();
    if (gradients.empty()) {
      gradients = part;
    } else {
      for (std::size_t i = 0; i < part.size(); ++i)
        for (std::size_t e = 0; e < part[i].data.size(); ++e) gradients[i].data[e] += part[i].data[e];
    }
  }
  EXPECT_EQ(whole_loss.target_tokens, 3 + 4 + 1 + 2);
  EXPECT_EQ(sum.target_tokens, whole_loss.target_tokens);
  EXPECT_NEAR(sum.negative_log_likelihood, whole_loss.negative_log_likelihood, 1e-11);
  EXPECT_NEAR(sum.smoothed, whole_loss.smoothed, 1e-11);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(close(gradients[i], expected[i], 1e-12)) << model_.name(i);
}

TEST_P(ModelGradient, PaddingAndEarlierBatchesDoNotMatter) {
  const Batch batch(corpus_, 0, 3);
  const Batch other_padding(corpus_, 0, 3, 4);
  const double loss = model_.run(batch.view, GetParam()).smoothed;
  const std::vector<Values> expected = model_.gradients();
  EXPECT_NEAR(model_.run(other_padding.view, GetParam()).smoothed, loss, 1e-13);
  std::vector<Values> gradients = model_.gradients();
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(close(gradients[i], expected[i], 1e-13)) << model_.name(i);

  // Parameters of NaN fill the working memory with NaN.
  const Tensor values = model_->parameters().values();
  const Values saved = model_.memory().read(values);
  model_.memory().write(values, Values(1, values.cols, std::numeric_limits<double>::quiet_NaN()));
  const Batch largest(corpus_, 0, 4);
  EXPECT_TRUE(std::isnan(model_.run(largest.view, GetParam()).smoothed)) << "NaN must reach the loss";
  model_.memory().write(values, saved);
  EXPECT_EQ(model_.run(batch.view, GetParam()).smoothed, loss);
  gradients = model_.gradients();
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(close(gradients[i], expected[i], 0)) << model_.name(i);
}

TEST_P(ModelGradient, EachParameterIsReadyOnceAndThenFinal) {
  const Batch batch(corpus_, 0, 3);
  std::vector<int> calls(model_.count());
  std::vector<Values> when_ready(model_.count());
  model_.run(batch.view, GetParam(), [&](std::size_t i) {
    ++calls.at(i);
    when_ready[i] = model_.memory().read(model_->parameters().gradient(i));
  });
  const std::vector<Values> final = model_.gradients();
  for (std::size_t i = 0; i < model_.count(); ++i) {
    EXPECT_EQ(calls[i], 1) << model_.name(i);
    EXPECT_TRUE(close(when_ready[i], final[i], 0)) << model_.name(i);
  }
}

TEST_P(ModelGradient, AnEmptyBatchGivesZeroGradients) {
  const Batch batch(corpus_, 0, 3);
  model_.run(batch.view, GetParam());
  std::vector<int> calls(model_.count());
  const BatchLoss loss = model_.run(BatchView{}, GetParam(), [&](std::size_t i) { ++calls.at(i); });
  EXPECT_EQ(loss.target_tokens, 0);
  EXPECT_EQ(loss.smoothed, 0.0);
  EXPECT_EQ(loss.negative_log_likelihood, 0.0);
  for (const Values& gradient : model_.gradients()) EXPECT_EQ(gradient.largest(), 0.0);
  for (const int count : calls) EXPECT_EQ(count, 1);
}

TEST_P(ModelGradient, EvaluationIsTheLossWithoutDropout) {
  const Batch batch(corpus_, 0, 4);
  ModelCase plain = GetParam();
  plain.dropout = plain.output_dropout = 0;
  plain.shape.sampled_words = 0;
  TestModel of_all_words(make_reference_backend(), plain.shape, small_limits(),
                         plain.shape.unit == UnitType::nas ? 1.6 : 0.8);
  const BatchLoss expected = of_all_words.run(batch.view, plain);
  model_.run(batch.view, plain);
  const std::vector<Values> gradients = model_.gradients();
  const BatchLoss actual = model_->evaluate(batch.view);
  EXPECT_NEAR(actual.negative_log_likelihood, expected.negative_log_likelihood, 1e-12);
  EXPECT_EQ(actual.target_tokens, expected.target_tokens);
  const std::vector<Values> after = model_.gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(close(after[i], gradients[i], 0));
  if (GetParam().dropout > 0 || GetParam().output_dropout > 0) {
    EXPECT_NE(model_.run(batch.view, GetParam()).negative_log_likelihood, expected.negative_log_likelihood);
  }
}

TEST_P(ModelGradient, SearchSeesTheTrainedModel) {
  const Batch batch(corpus_, 0, 4);
  const BatchLoss expected = model_->evaluate(batch.view);
  constexpr std::int64_t beam = 3;
  SearchModel search(model_.model(), beam), search_that_looks_words_up(model_.model(), beam);
  search_that_looks_words_up.expect(1'000'000);
  for (SearchModel* each : {&search, &search_that_looks_words_up}) each->start(batch.view);
  const std::int64_t sentences = batch.view.sentences;
  const std::int64_t vocabulary = GetParam().shape.target_vocabulary;
  // One hypothesis of each sentence follows the right words and changes its place in the beam; the others
  // have wrong words. A sentence has rows as long as it has words.
  double nll = 0;
  const auto goes_on = [&](std::int64_t b, std::int64_t t) {
    return t < batch.target_lengths[static_cast<std::size_t>(b)];
  };
  std::vector<std::int64_t> first_row(static_cast<std::size_t>(sentences));
  for (std::int64_t t = 0; t < batch.view.target_steps; ++t) {
    const std::int64_t right = (2 * t + 1) % beam, previous = t == 0 ? 0 : (2 * t - 1) % beam;
    std::vector<std::int32_t> parents, words;
    for (std::int64_t b = 0; b < sentences; ++b) {
      if (!goes_on(b, t)) continue;
      const std::int64_t first = first_row[static_cast<std::size_t>(b)];
      first_row[static_cast<std::size_t>(b)] = static_cast<std::int64_t>(parents.size());
      for (std::int64_t k = 0; k < beam; ++k) {
        parents.push_back(static_cast<std::int32_t>(t == 0 ? b : first + (k == right ? previous : k)));
        words.push_back(k == right ? batch.target_in[static_cast<std::size_t>(t * sentences + b)] : 7);
      }
    }
    for (SearchModel* each : {&search, &search_that_looks_words_up}) each->step(parents, words);
    const Values log_probabilities = model_.memory().read(search.log_probabilities());
    const Values looked_up = model_.memory().read(search_that_looks_words_up.log_probabilities());
    ASSERT_TRUE(close(looked_up, log_probabilities, 1e-6));
    const std::span<const float> weights = search.attention_weights();
    EXPECT_EQ(log_probabilities.rows, static_cast<std::int64_t>(parents.size()));
    for (std::int64_t b = 0; b < sentences; ++b) {
      if (!goes_on(b, t)) continue;
      const std::int64_t right_row = first_row[static_cast<std::size_t>(b)] + right;
      double probability = 0;
      for (std::int64_t v = 0; v < vocabulary; ++v) probability += std::exp(log_probabilities(right_row, v));
      EXPECT_NEAR(probability, 1, 1e-5);
      nll -= log_probabilities(right_row, batch.target_out[static_cast<std::size_t>(t * sentences + b)]);
      if (!GetParam().shape.has_attention()) {
        EXPECT_TRUE(weights.empty());
        continue;
      }
      double weight = 0;
      for (std::int64_t s = 0; s < batch.view.source_steps; ++s) {
        const float w = weights[static_cast<std::size_t>(right_row * batch.view.source_steps + s)];
        if (s >= batch.source_lengths[static_cast<std::size_t>(b)]) {
          EXPECT_EQ(w, 0.0f) << "attends to padding";
        }
        weight += static_cast<double>(w);
      }
      EXPECT_NEAR(weight, 1, 1e-6);
    }
  }
  EXPECT_NEAR(nll, expected.negative_log_likelihood, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelGradient, testing::ValuesIn(model_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Model, ABatchBeyondTheLimitsIsRefused) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 3);
  const ModelShape shape = shape_of(4, false, 1, 1, AttentionKind::none);
  for (const BatchLimits& limits : {BatchLimits{2, 3, 4}, BatchLimits{3, 2, 4}, BatchLimits{3, 3, 3}}) {
    TestModel model(make_reference_backend(), shape, limits);
    EXPECT_THROW(model.run(batch.view, {"", shape}), ddl::Error);
  }
}

ModelShape article_model() {
  ModelShape shape = shape_of(1024, true, 4, 4, AttentionKind::none);
  shape.source_vocabulary = shape.target_vocabulary = 36'548;
  return shape;
}

TEST(ModelSize, OfTheArticlesModel) {
  const ParameterLayout layout = parameter_layout(article_model());
  EXPECT_EQ(layout.size, 179'417'088);
  EXPECT_EQ(layout.size * 4, 717'668'352);
  std::int64_t sum = 0, end = 0;
  for (const ParameterSpec& parameter : layout.parameters) {
    EXPECT_EQ(parameter.offset, end) << parameter.name;
    sum += parameter.size();
    end += parameter.size() + (parameter.rows == 36'548 ? 4 * parameter.cols : 0);  // to 36,552 rows
  }
  EXPECT_EQ(sum, layout.size);
  EXPECT_EQ(end, layout.extent);
  const std::string text = describe(layout);
  EXPECT_NE(text.find("179,417,088"), std::string::npos) << text;
  EXPECT_NE(text.find("717,668,352"), std::string::npos) << text;
}

TEST(ModelSize, OfItsVariants) {
  ModelShape luong = article_model();
  luong.attention = AttentionKind::luong;
  EXPECT_EQ(parameter_layout(luong).size, 179'417'088 + 9 * 1024 * 1024);
  luong.attention = AttentionKind::scaled_luong;
  EXPECT_EQ(parameter_layout(luong).size, 179'417'088 + 9 * 1024 * 1024 + 1);
  ModelShape shared = article_model();
  shared.share_vocabulary = true;
  EXPECT_EQ(parameter_layout(shared).size, 179'417'088 - 36'548 * 1024);
}

// PyTorch's LSTM has two biases, so NVIDIA's count is 9 * 4096 larger: 160.7 million.
TEST(ModelSize, OfNvidiasGnmt) {
  ModelShape shape = shape_of(1024, false, 4, 4, AttentionKind::normed_bahdanau);
  shape.source_vocabulary = shape.target_vocabulary = 32'320;
  shape.encoder = EncoderType::gnmt;
  shape.architecture = AttentionArchitecture::gnmt_v2;
  shape.feed_context = false;
  shape.share_vocabulary = shape.output_bias = true;
  EXPECT_EQ(parameter_layout(shape).size + 9 * 4096, 160'671'297);
}

// Gradients of 16 bits behind an odd one would be out of tensor cores' reach.
TEST(ModelSize, ParametersBeginAtMultiplesOf16Bytes) {
  ParameterLayout layout;
  layout.declare("scale", 1, 1, 1);
  layout.declare("kernel", 8, 4);
  layout.declare("bias", 1, 17, 0);
  layout.declare("last", 1, 3);
  std::vector<std::int64_t> offsets;
  for (const ParameterSpec& parameter : layout.parameters) offsets.push_back(parameter.offset);
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 8, 40, 64}));
  EXPECT_EQ(layout.size, 1 + 32 + 17 + 3);
  EXPECT_EQ(layout.extent, 67);
}

TEST(ModelSize, AnUnknownParameterIsAnError) {
  const ParameterLayout layout = parameter_layout(article_model());
  EXPECT_TRUE(layout.contains("projection/kernel"));
  EXPECT_FALSE(layout.contains("projection/kernels"));
  EXPECT_EQ(layout.parameters[layout.index_of("projection/kernel")].rows, 36'548);
  EXPECT_THROW(static_cast<void>(layout.index_of("projection/kernels")), ddl::Error);
}

TEST(Initialization, IsUniformAsAskedAndTheSameOnEveryBackend) {
  const ModelShape shape = shape_of(64, true, 2, 2, AttentionKind::scaled_luong);
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(1);
  for (const InitOp operation : {InitOp::uniform, InitOp::glorot_uniform, InitOp::glorot_normal}) {
    SCOPED_TRACE(name_of(operation));
    ParameterSet a(*reference, parameter_layout(shape));
    ParameterSet b(*cpu, parameter_layout(shape));
    a.initialize(*reference, operation, 0.1, 5);
    b.initialize(*cpu, operation, 0.1, 5);
    Memory memory_a(*reference), memory_b(*cpu);
    EXPECT_TRUE(close(memory_b.read(b.values()), memory_a.read(a.values()), 0));
    for (std::size_t i = 0; i < a.count(); ++i) {
      const ParameterSpec& spec = a.layout().parameters[i];
      SCOPED_TRACE(spec.name);
      const Values x = memory_a.read(a.value(i));
      if (spec.constant) {
        EXPECT_TRUE(close(x, Values(x.rows, x.cols, *spec.constant), 0));
        continue;
      }
      const double fans = static_cast<double>(spec.rows + spec.cols);
      const double deviation = operation == InitOp::uniform ? 0.1 / std::sqrt(3.0) : std::sqrt(2.0 / fans);
      const auto size = static_cast<double>(x.data.size());
      double sum = 0;
      for (const double value : x.data) sum += value;
      EXPECT_NEAR(sum / size, 0, 5 * deviation / std::sqrt(size));
      EXPECT_NEAR(std::sqrt(dot(x, x) / size), deviation, 5 * deviation / std::sqrt(size));
      const bool normal = operation == InitOp::glorot_normal;  // TensorFlow cuts it at two deviations
      EXPECT_LE(x.largest(), deviation * (normal ? 2 / 0.8796 : std::sqrt(3.0)) * 1.0001);
    }
    const Values first = memory_a.read(a.values());
    a.initialize(*reference, operation, 0.1, 6);
    EXPECT_FALSE(close(memory_a.read(a.values()), first, 0)) << "the seed does not count";
  }
}

// Sentences longer than those of training could not be evaluated, or would end the process.
TEST(Evaluation, TakesLongerSentencesUpToABound) {
  const ModelShape shape = shape_of(4, true, 2, 2, AttentionKind::luong);
  TestModel small(make_cpu_backend(1), shape, {1, 2, 2});
  TestModel large(make_cpu_backend(1), shape, {4, 3, 4});
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  EXPECT_TRUE(small->fits(1, 2, 2));
  EXPECT_FALSE(small->fits(4, 3, 400));
  EXPECT_EQ(small->evaluate(batch.view).negative_log_likelihood,
            large->evaluate(batch.view).negative_log_likelihood);
  BatchView huge = batch.view;
  huge.source_steps = huge.target_steps = 1'000'000;
  try {
    small->evaluate(huge);
    FAIL() << "expected an error";
  } catch (const ddl::Error& error) {
    EXPECT_EQ(error.code(), ddl::ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("--tgt_max_len_infer"), std::string::npos) << error.what();
  }
}

// Translating would need twice the memory of the model.
TEST(Inference, AModelWithoutLimitsHasNoGradients) {
  const auto backend = make_cpu_backend(1);
  Model model(*backend, shape_of(4, true, 2, 2, AttentionKind::luong), {});
  EXPECT_EQ(model.parameters().gradients().data, nullptr);
  EXPECT_LE(model.workspace_bytes(), 1024u);
}

// Dropout "of a sentence" would be another for each word; gradients alone would not show that.
TEST(DropoutOfSentences, IsTheSameForAllWords) {
  constexpr std::int64_t sentences = 2, steps = 3, columns = 32;
  const auto backend = make_reference_backend();
  Memory memory(*backend);
  ParameterLayout layout;
  layout.declare("none", 1, 1);
  const ParameterSet parameters(*backend, layout);
  const Tensor x = memory.tensor(Values(sentences * steps, columns, 1)), y = memory.tensor(x.rows, columns);
  const auto mask = [&](bool per_sentence, std::int64_t first_position) {
    const StepContext step{
        .backend = *backend,
        .parameters = parameters,
        .dropout = {.rate = 0.5, .per_sentence = per_sentence},
        .samples = per_sentence ? memory.indices({7, 8, 7, 8, 7, 8}) : memory.indices({7, 8}),
        .dropout_keys = memory.key({1, 2, 3})};
    step.drop(x, y, 0, first_position);
    return memory.read(y);
  };
  const Values of_words = mask(false, 0), of_sentences = mask(true, 0);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c)
      EXPECT_EQ(of_sentences(row, c), of_words(row % sentences, c)) << row << ", " << c;
  }
  EXPECT_TRUE(close(mask(true, 2), of_sentences, 0)) << "a later word's";
}

// Two layers of a deep model would drop the same elements.
TEST(DropoutSites, AreDifferentForAllLayersOfTheDeepestModels) {
  for (const int stacks : {1, 2}) {
    std::set<std::uint32_t> sites = {output_dropout_site};
    for (int layer = 0; layer < 256; ++layer) {
      sites.insert(encoder_dropout_site(layer % stacks, layer / stacks));
      sites.insert(decoder_dropout_site(layer));
    }
    EXPECT_EQ(sites.size(), 513U) << stacks << " encoder stacks";
  }
}

}  // namespace
}  // namespace nmt::test
