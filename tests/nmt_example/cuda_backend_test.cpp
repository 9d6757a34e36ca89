// Tests specific to the CUDA backend; the same program runs all other tests of backends on it. All are
// skipped if there is no device. Otherwise training on devices would differ from training on CPUs.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ddl/error.hpp"
#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/model_test_support.hpp"
#include "nmt_example/small_training.hpp"
#include "support/nvidia_driver.hpp"
#include "support/thrown_error.hpp"

namespace nmt::test {
namespace {

/// Only a machine without a device may skip; an unusable device must fail.
std::string no_device() {
  try {
    cuda_devices();
  } catch (const ddl::Error& error) {
    if (!ddl::test::has_nvidia_driver()) return error.what();
  }
  return "";
}

/// With more streams than by default.
std::unique_ptr<Backend> make_with_wavefront() {
  std::unique_ptr<Backend> backend = make_cuda_backend(0);
  EXPECT_EQ(backend->use_lstm(LstmMethod::wavefront), "");
  return backend;
}

const BackendCase cuda_case{"Cuda", make_with_wavefront, no_device};

class Cuda : public testing::Test {
 protected:
  std::unique_ptr<Backend> cuda_ = make_or_skip(cuda_case);
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  Random random_{11};
};

TEST_F(Cuda, NamesItsDeviceAndHidesItsMemory) {
  EXPECT_EQ(cuda_->name().substr(0, 6), "cuda (") << cuda_->name();
  EXPECT_FALSE(cuda_->host_accessible());
}

TEST_F(Cuda, SaysWhichDevicesThereAre) {
  const int count = cuda_devices();
  for (const int device : {-1, count}) {
    ddl::test::expect_error(ddl::ErrorCode::unsupported, {std::to_string(count) + " found"},
                            [&] { make_cuda_backend(device); });
  }
}

TEST_F(Cuda, SaysWhenMemoryIsFull) {
  ddl::test::expect_error(ddl::ErrorCode::unsupported, {"--batch_size"},
                          [&] { const auto memory = cuda_->allocate(std::size_t{1} << 50); });
  EXPECT_NE(cuda_->allocate(1000), nullptr) << "it does not recover";
}

// --mini_batch_fit would find a batch that the device has no memory for.
TEST_F(Cuda, SaysHowMuchMemoryIsFree) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const std::size_t before = free_device_memory();
  const std::shared_ptr<void> memory = cuda_->allocate(bytes);
  EXPECT_LE(free_device_memory() + bytes, before + (bytes >> 3));  // other programs may use the device
}

// An upload would overwrite the staging memory of another one that is still in flight.
TEST_F(Cuda, UploadsKeepTheirValuesWhateverTheirNumberAndSize) {
  Memory memory(*cuda_, Layout::strided);
  for (const std::int64_t cols : {1, 3, 1000, 100'000, 131'072, 131'073, 400'000}) {
    std::vector<Tensor> tensors;
    std::vector<Values> values;
    for (int i = 0; i < 12; ++i) {
      values.push_back(random_.values(2, cols));
      tensors.push_back(memory.tensor(values.back()));
    }
    for (std::size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(close(memory.read(tensors[i]), values[i], 0)) << cols << " columns, upload " << i;
  }
  std::vector<Indices> indices;
  std::vector<std::vector<std::int32_t>> numbers;
  for (int i = 0; i < 500; ++i) {
    numbers.push_back(random_.integers(3000, 0, 4));
    indices.push_back(memory.indices(numbers.back()));
  }
  const Values table = random_.values(5, 1);
  const Tensor from = memory.tensor(table);
  for (std::size_t i = 0; i < indices.size(); i += 7) {
    const Tensor to = memory.tensor(3000, 1);
    cuda_->gather_rows(from, indices[i], to);
    Values expected(3000, 1);
    for (std::size_t r = 0; r < 3000; ++r) expected.data[r] = table(numbers[i][r], 0);
    ASSERT_TRUE(close(memory.read(to), expected, 0)) << "indices " << i;
  }
}

// The kernel of a large vocabulary would be read too often, or logits would fill the device's memory.
TEST_F(Cuda, LogitsAreComputedManyRowsAtATime) {
  for (const std::int64_t vocabulary : {10, 8000, 36'549, 131'072, 300'000, 1'000'000}) {
    const std::int64_t rows = cuda_->logits_rows(vocabulary);
    EXPECT_GE(rows, 1024) << vocabulary << " words";
    if (rows > 1024) {
      EXPECT_LE(rows * vocabulary * 4, std::int64_t{128} << 20) << vocabulary << " words";
    }
  }
}

// The trainer would not say what copies of parameters take.
TEST_F(Cuda, CopiesOfParametersAreCounted) {
  Memory memory(*cuda_);
  const auto type = cuda_->narrow_type();
  const std::size_t before = cuda_->product_bytes();
  const Tensor parameter = memory.tensor(random_.values(5, 9));
  const Tensor a = memory.tensor(random_.values(3, 5), Layout::strided, type);
  for (int time = 0; time < 2; ++time) {
    memory->multiply(a, Transpose::no, parameter, false, memory.tensor(3, 9));
    EXPECT_EQ(cuda_->product_bytes() - before, 5u * 16 * ddl::size_of(type));
    memory->parameters_changed();
  }
}

// Kernels would fail for more rows than a grid's y dimension, or for the reference model's vocabulary.
TEST_F(Cuda, LargeSizes) {
  const Values x = random_.values(70'000, 3);
  const auto rows = random_.integers(70'000, 0, 69'999);
  const Values logits = random_.values(40, 36'548, -10, 10);
  const auto targets = random_.integers(40, 0, 36'547);
  const auto run = [&](Backend& backend) {
    Memory memory(backend);
    const Tensor gathered = memory.tensor(70'000, 3);
    memory->gather_rows(memory.tensor(x), memory.indices(rows), gathered);
    const Tensor sums = memory.tensor(Values(1, 3));
    memory->add_column_sums(gathered, sums);
    const Tensor scores = memory.tensor(logits);
    const Tensor losses = memory.sums(2);
    memory->softmax_cross_entropy(scores, memory.indices(targets), 0.1, scores, nullptr, losses);
    return std::vector<Values>{memory.read(gathered), memory.read(sums), memory.read(scores),
                               memory.read(losses)};
  };
  const std::vector<Values> expected = run(*cpu_), found = run(*cuda_);
  EXPECT_TRUE(close(found[0], expected[0], 0));
  EXPECT_TRUE(close(found[1], expected[1], 0.05));
  EXPECT_TRUE(close(found[2], expected[2], 1e-5));
  EXPECT_TRUE(close(found[3], expected[3], 1e-4 * expected[3].largest()));
}

/// What `embedding_backward` adds to a table of fp32, in the order of the cuda backend.
Values embedding_gradients(const Values& gradient, const std::vector<std::int32_t>& ids, Values table) {
  constexpr std::size_t chunk = 64;
  std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(table.rows));
  for (std::size_t i = 0; i < ids.size(); ++i)
    places[static_cast<std::size_t>(ids[i])].push_back(static_cast<std::int64_t>(i));
  for (std::int64_t id = 0; id < table.rows; ++id) {
    const std::vector<std::int64_t>& of_id = places[static_cast<std::size_t>(id)];
    for (std::int64_t c = 0; c < table.cols && !of_id.empty(); ++c) {
      auto sum = static_cast<float>(table(id, c));
      for (std::size_t begin = 0; begin < of_id.size(); begin += chunk) {
        float part = begin == 0 ? sum : 0;
        for (std::size_t i = begin; i < std::min(begin + chunk, of_id.size()); ++i)
          part += static_cast<float>(gradient(of_id[i], c));
        sum = begin == 0 ? part : sum + part;
      }
      table(id, c) = sum;
    }
  }
  return table;
}

// Embeddings would miss gradients of some words, or training would have other bits each time. Rare words have
// the CPU's bits; every other word here is padding, or all are, or ids are at the vocabulary's ends.
TEST_F(Cuda, EmbeddingGradientsAreAddedUpInTheirOrder) {
  struct Case {
    std::int64_t words, vocabulary, columns;
    std::int32_t distance;  ///< of words that are padding
  };
  for (const auto& [words, vocabulary, columns, distance] :
       {Case{1, 41, 300, 2}, Case{64, 1, 5, 1}, Case{65, 1, 5, 1}, Case{128, 41, 300, 2},
        Case{129, 2, 129, 3}, Case{511, 41, 1, 2}, Case{512, 41, 4, 2}, Case{513, 70'000, 3, 2},
        Case{3001, 7, 131, 1}, Case{3001, 70'000, 17, 2}, Case{128 * 128 + 1, 300, 3, 2}}) {
    SCOPED_TRACE(testing::Message() << words << " words of " << vocabulary << ", " << columns << " columns");
    auto ids = random_.integers(words, 0, static_cast<std::int32_t>(vocabulary) - 1);
    for (std::size_t i = 0; i < ids.size(); i += static_cast<std::size_t>(distance))
      ids[i] = static_cast<std::int32_t>(vocabulary) - 1;
    ids.back() = 0;
    const Values start = random_.values(vocabulary, columns);
    for (const ddl::DataType type : {cuda_->type(), cuda_->narrow_type()})
      for (const Layout layout : {Layout::strided, Layout::aligned}) {
        Memory memory(*cuda_, layout);
        const Tensor gradient = memory.tensor(random_.values(words, columns), layout, type);
        const Tensor table = memory.tensor(start);
        memory->embedding_backward(gradient, memory.indices(ids), table);
        EXPECT_TRUE(close(memory.read(table), embedding_gradients(memory.read(gradient), ids, start), 0))
            << "gradients of " << ddl::size_of(type) << " bytes, " << name_of(layout);
      }
  }
}

// --dtype=tf32 would be as slow as f32, or f32 as inexact as tf32.
TEST_F(Cuda, OnlyTf32RoundsTheFactorsOfProducts) {
  constexpr std::int64_t rows = 32, inner = 64, cols = 48;
  const Values a = random_.values(rows, inner), b = random_.values(inner, cols);
  const auto error_of = [&](bool tf32) {
    const auto backend = make_cuda_backend(0, {.tf32 = tf32});
    Memory memory(*backend);
    const Tensor c = memory.tensor(rows, cols);
    backend->gemm(Transpose::no, Transpose::no, memory.tensor(a), memory.tensor(b), false, c);
    const Values found = memory.read(c);
    double largest = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < cols; ++j) {
        double exact = 0, sizes = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          exact += a(r, k) * b(k, j);
          sizes += std::abs(a(r, k) * b(k, j));
        }
        largest = std::max(largest, std::abs(found(r, j) - exact) / sizes);
      }
    }
    return largest;
  };
  EXPECT_LT(error_of(false), 0x1p-18);
  const double found = error_of(true);
  EXPECT_GT(found, 0x1p-15);
  EXPECT_LT(found, 0x1p-9);
}

// Words of the first batch would get the gradients of later ones.
TEST_F(Cuda, RecordedEmbeddingGradientsAreThoseOfNewWords) {
  constexpr std::int64_t words = 1000;
  Memory memory(*cuda_);
  Values expected = random_.values(30, 40);
  const Tensor gradient = memory.tensor(words, 40), table = memory.tensor(expected);
  const Indices ids = memory.indices(std::vector<std::int32_t>(words));
  for (int time = 0; time < 4; ++time) {
    const Values values = random_.values(words, 40);
    const auto of_batch = random_.integers(words, 0, 10 * time % 30);
    memory.write(gradient, values);
    cuda_->upload(ids, of_batch);
    cuda_->replay({1, 0}, [&] { cuda_->embedding_backward(gradient, ids, table); });
    expected = embedding_gradients(values, of_batch, expected);
    EXPECT_TRUE(close(memory.read(table), expected, 0)) << "time " << time + 1;
  }
}

// Recorded work would go on with the first batch's values, or would be queued call by call each time.
TEST_F(Cuda, RecordedWorkIsDoneAgainOnNewValues) {
  Memory memory(*cuda_);
  const Tensor x = memory.tensor(5, 70), weights = memory.tensor(random_.values(70, 3));
  const Tensor sums = memory.tensor(Values(5, 3)), product = memory.tensor(5, 3);
  int runs = 0;
  Values expected(5, 3);
  for (int time = 0; time < 4; ++time) {
    const Values values = random_.values(5, 70);
    memory.write(x, values);
    cuda_->replay({1, 0}, [&] {
      ++runs;
      cuda_->gemm(Transpose::no, Transpose::no, x, weights, false, product);
      cuda_->add(product, sums);
    });
    const Values factors = memory.read(weights);
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t c = 0; c < 3; ++c)
        for (std::int64_t k = 0; k < 70; ++k) expected(r, c) += values(r, k) * factors(k, c);
    EXPECT_TRUE(close(memory.read(sums), expected, 1e-4)) << "time " << time + 1;
  }
  EXPECT_EQ(runs, 2);
}

// Graphs would fill the memory of a run that translates texts of all lengths, or frequent ones would go.
TEST_F(Cuda, KeepsTheWorkThatWasUsedLast) {
  Memory memory(*cuda_);
  const Tensor x = memory.tensor(1, 1);
  std::map<std::uint64_t, int> runs;
  const auto replay = [&](std::uint64_t key) {
    cuda_->replay({key, 0}, [&] {
      ++runs[key];
      cuda_->zero(x);
    });
  };
  for (std::uint64_t key = 1; key <= 2000; ++key) {
    for (int time = 0; time < 3; ++time) replay(key);
    replay(1);
  }
  EXPECT_EQ(runs[1], 2) << "work that is often used was forgotten";
  EXPECT_EQ(runs[2], 2);
  replay(2000);
  EXPECT_EQ(runs[2000], 2);
  replay(2);
  EXPECT_EQ(runs[2], 3) << "everything is kept";
}

/// Counts kinds of work that are recorded.
class CountingBackend final : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  [[nodiscard]] bool records() const override { return inner_records_; }
  void replay(const WorkKey& key, const std::function<void()>& work) override {
    ++calls_;
    if (!is_inside_) keys_.insert({key.group, key.part});
    const bool was_inside = std::exchange(is_inside_, true);
    inner().replay(key, [&] {
      ++runs_;
      work();
    });
    is_inside_ = was_inside;
  }
  [[nodiscard]] int calls() const noexcept { return calls_; }
  /// How many calls were not replayed.
  [[nodiscard]] int runs() const noexcept { return runs_; }
  /// Of work that is not a part of other such work.
  [[nodiscard]] std::size_t keys() const noexcept { return keys_.size(); }

 private:
  void before(const Work&) override {}
  void after(const Work&) override {}

  bool inner_records_ = inner().records();
  std::set<std::pair<std::uint64_t, std::uint64_t>> keys_;
  int calls_ = 0, runs_ = 0;
  bool is_inside_ = false;
};

// Each step of a search would be queued call by call; or replayed steps would go on from the wrong rows.
TEST_F(Cuda, SearchesReplayTheirSteps) {
  constexpr std::int64_t sentences = 4, beam = 6;
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, sentences);
  ModelCase gnmt = gnmt_case("gnmt", 3, AttentionKind::normed_bahdanau, false);
  ModelCase gru{"gru", shape_of(16, false, 2, 2, AttentionKind::luong)};
  gru.shape.unit = UnitType::gru;
  for (const ModelCase& c :
       {ModelCase{"standard", shape_of(16, true, 2, 2, AttentionKind::scaled_luong)}, gnmt, gru,
        ModelCase{"without attention", shape_of(16, false, 2, 2, AttentionKind::none)}}) {
    SCOPED_TRACE(c.name);
    auto owned = std::make_unique<CountingBackend>(make_cuda_backend(0));
    const CountingBackend& counting = *owned;
    TestModel on_cuda(std::move(owned), c.shape, small_limits(), 0.8);
    TestModel on_cpu(make_cpu_backend(1), c.shape, small_limits(), 0.8);
    std::vector<double> expected, found;
    int recorded_runs = 0;
    for (auto& [model, best] : {std::pair(&on_cpu, &expected), std::pair(&on_cuda, &found)}) {
      SearchModel search(model->model(), beam);
      for (int time = 0; time < 3; ++time) {
        recorded_runs = counting.runs();
        search.start(batch.view);
        search_some_steps(search, sentences, beam, [&](std::span<const double> words) {
          best->insert(best->end(), words.begin(), words.end());
        });
      }
    }
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << "number " << i;
    EXPECT_EQ(counting.runs(), recorded_runs) << "the third search is not replayed";
    EXPECT_GT(counting.calls(), 3 * 2 * 7) << "steps are not recorded";
  }
}

// A run over texts of differing lengths would record graphs for most of its steps, instead of replaying; or
// replayed steps would have other losses.
TEST_F(Cuda, BatchesOfDifferingLengthsNeedFewGraphs) {
  Corpus corpus;
  for (int length = 1; length <= 16; ++length) {
    corpus.sources.push_back(random_.integers(length, 3, 10));
    corpus.targets.push_back(random_.integers(16 - length, 3, 8));
    corpus.samples.push_back(length);
  }
  const ModelCase c{"", shape_of(16, true, 2, 1, AttentionKind::luong), 0.2};
  const BatchLimits limits{1, 16, 17};
  auto owned = std::make_unique<CountingBackend>(make_cuda_backend(0));
  const CountingBackend& counting = *owned;
  TestModel on_cuda(std::move(owned), c.shape, limits, 0.3),
      on_cpu(make_cpu_backend(1), c.shape, limits, 0.3);
  for (std::size_t i = 0; i < 16; ++i) {
    const Batch batch(corpus, i, i + 1);
    const double expected = on_cpu.run(batch.view, c).smoothed;
    EXPECT_NEAR(on_cuda.run(batch.view, c).smoothed, expected, 1e-5 * expected) << "batch " << i;
  }
  // As `Replay.BatchesOfSimilarLengthsHaveTheSameKeys`.
  EXPECT_EQ(counting.keys(), 4U * 6U + 16U);
}

/// Sentences of these lengths.
Corpus corpus_of(Random& random, const std::vector<int>& sources, const std::vector<int>& targets) {
  Corpus corpus;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    corpus.sources.push_back(random.integers(sources[i], 3, 7));
    corpus.targets.push_back(random.integers(targets[i], 3, 7));
    corpus.samples.push_back(static_cast<std::int32_t>(10 + i));
  }
  return corpus;
}

// Batches of a shape that was recorded would have other gradients than the first ones, or gradients that are
// never reduced.
TEST_F(Cuda, ReplayedStepsAreThoseOfTheHost) {
  const BatchLimits limits{4, 8, 8};
  // Three of one shape, with as many loss rows when some are added, and one of another.
  const std::vector<Corpus> corpora = {
      corpus_of(random_, {8, 2, 5, 1}, {7, 3, 5, 4}), corpus_of(random_, {3, 8, 7, 2}, {2, 7, 6, 5}),
      corpus_of(random_, {2, 4, 3, 1}, {3, 2, 1, 3}), corpus_of(random_, {6, 1, 1, 5}, {6, 6, 6, 1})};
  for (const ModelCase& c : model_cases()) {
    SCOPED_TRACE(c.name);
    auto owned = std::make_unique<CountingBackend>(make_with_wavefront());
    const CountingBackend& counting = *owned;
    TestModel on_cuda(std::move(owned), c.shape, limits, 0.3),
        on_cpu(make_cpu_backend(1), c.shape, limits, 0.3);
    // Layer norm divides differences of nearly equal numbers, which fp32 rounds.
    const double tolerance = c.shape.unit == UnitType::layer_norm_lstm ? 1e-3 : 1e-4;
    int runs = 0;
    for (const std::size_t i : {0, 1, 2, 3, 0}) {
      SCOPED_TRACE(i);
      runs = counting.runs();
      const Batch batch(corpora[i], 0, 4);
      std::vector<std::size_t> ready, ready_on_cpu;
      const double expected =
          on_cpu.run(batch.view, c, [&](std::size_t p) { ready_on_cpu.push_back(p); }).smoothed;
      const double found = on_cuda.run(batch.view, c, [&](std::size_t p) { ready.push_back(p); }).smoothed;
      EXPECT_NEAR(found, expected, 1e-5 * expected);
      EXPECT_EQ(ready, ready_on_cpu);
      const std::vector<Values> gradients = on_cuda.gradients(), of_cpu = on_cpu.gradients();
      for (std::size_t p = 0; p < gradients.size(); ++p) {
        EXPECT_TRUE(close(gradients[p], of_cpu[p], tolerance * (0.1 + of_cpu[p].largest())))
            << on_cpu.name(p);
      }
    }
    EXPECT_EQ(counting.runs(), runs) << "a part of the last step is not replayed";
  }
}

// Each step would read all parameters once more to convert them, or multiply by those before it.
TEST_F(Cuda, UpdatesWriteTheCopiesThatProductsUse) {
  Memory memory(*cuda_, Layout::contiguous);
  const ddl::DataType type = cuda_->narrow_type();
  const Values start = random_.values(1, 1000), gradients = random_.values(1, 1000);
  const Values m = random_.values(1, 1000);
  const Tensor values = memory.tensor(start);
  // Some of the values, some again, and between them some that no product uses.
  const std::vector<Tensor> factors = {values.col_range(8, 15 * 20).reshaped(15, 20),
                                       values.col_range(8 + 5 * 20, 5 * 20).reshaped(5, 20),
                                       values.col_range(400, 33 * 3).reshaped(33, 3)};
  const auto read = [&](const Tensor& factor) {
    Values identity(factor.rows, factor.rows);
    for (std::int64_t i = 0; i < factor.rows; ++i) identity(i, i) = 1;
    const auto bytes = static_cast<std::size_t>(factor.rows * factor.rows) * ddl::size_of(type);
    const std::shared_ptr<void> owned = cuda_->allocate(bytes);
    const Tensor narrow(owned.get(), factor.rows, factor.rows, factor.rows, type);
    cuda_->copy(memory.tensor(identity), narrow);
    const Tensor product = memory.tensor(factor.rows, factor.cols);
    cuda_->multiply(narrow, Transpose::no, factor, false, product);
    return memory.read(product);
  };
  for (const Tensor& factor : factors) read(factor);
  // Ranges that begin and end within copies, and leave some elements out.
  const std::vector<UpdateRange> ranges = {{.first = 0, .count = 131, .moment = 0},
                                           {.first = 131, .count = 277, .moment = 131},
                                           {.first = 411, .count = 200, .moment = 411}};
  cuda_->update(UpdateRule::momentum, {values, memory.tensor(gradients), memory.tensor(m), {}},
                {.learning_rate = 1, .beta1 = 0.5}, ranges);
  const auto is_updated = [&](const Tensor& factor) {
    const auto first = static_cast<std::size_t>(factor.as<float>() - values.as<float>());
    Values expected(factor.rows, factor.cols);
    for (std::size_t i = 0; i < expected.data.size(); ++i) {
      const std::size_t place = first + i;
      const double change = gradients.data[place] + 0.5 * m.data[place];
      expected.data[i] = start.data[place] - (place >= 408 && place < 411 ? 0 : change);
    }
    return close(read(factor), expected, 0x1p-7 * (1 + expected.largest()));
  };
  memory.write(values, Values(1, 1000));  // shows what is read again
  cuda_->parameters_changed();
  EXPECT_TRUE(is_updated(factors[0]));
  EXPECT_FALSE(is_updated(factors[1])) << "a part of another one";
  EXPECT_TRUE(is_updated(factors[2]));
  cuda_->parameters_changed();
  for (const Tensor& factor : factors) EXPECT_FALSE(is_updated(factor)) << "no update has set these values";
}

TEST_F(Cuda, TrainingGivesTheCpusLosses) {
  constexpr int steps = 10;
  const std::pair<OptimizerKind, AttentionKind> cases[] = {
      {OptimizerKind::adam, AttentionKind::scaled_luong},
      {OptimizerKind::sgd, AttentionKind::none},
      {OptimizerKind::lamb, AttentionKind::normed_bahdanau},
      {OptimizerKind::novograd, AttentionKind::luong},
  };
  for (const auto& [optimizer, attention] : cases) {
    SCOPED_TRACE(testing::Message() << name_of(optimizer) << ", attention '" << name_of(attention) << "'");
    Options options = small_training_options();
    options.optimizer = optimizer;
    options.attention = attention;
    ddl::run_in_process(
        1,
        [&](ddl::Context& context) {
          // A CUDA backend belongs to the thread that makes it.
          const auto cuda = make_cuda_backend(0);
          SmallTraining on_cpu(context, options, *cpu_), on_cuda(context, options, *cuda),
              again(context, options, *cuda);
          EXPECT_EQ(on_cuda.parameters(), on_cpu.parameters());
          const std::vector<double> expected = on_cpu.losses(steps), found = on_cuda.losses(steps);
          EXPECT_LT(expected.back(), expected.front());
          for (std::size_t i = 0; i < steps; ++i)
            EXPECT_NEAR(found[i], expected[i], 1e-4 * expected[i]) << "step " << i + 1;
          EXPECT_EQ(again.losses(steps), found) << "other bits the second time";
          EXPECT_EQ(again.parameters(), on_cuda.parameters());
        },
        quiet_ranks());
  }
}

// Training in 16 bits would not be near that in 32, or gradients of f16 would vanish because nothing scales
// the loss.
TEST_F(Cuda, TrainsInMixedPrecision) {
  constexpr int steps = 8;
  for (const MixedType type : {MixedType::bf16, MixedType::f16}) {
    SCOPED_TRACE(name_of(type));
    Options options = small_training_options();
    ddl::run_in_process(
        1,
        [&](ddl::Context& context) {
          const auto cuda = make_cuda_backend(0, {.mixed_type = type});
          SmallTraining on_cpu(context, options, *cpu_);
          options.dtype = Dtype::mixed;
          SmallTraining mixed(context, options, *cuda), again(context, options, *cuda);
          const std::vector<double> expected = on_cpu.losses(steps), found = mixed.losses(steps);
          for (std::size_t i = 0; i < steps; ++i)
            EXPECT_NEAR(found[i], expected[i], 2e-2 * expected[i]) << "step " << i + 1;
          EXPECT_LT(found.back(), found.front());
          EXPECT_EQ(again.losses(steps), found) << "other bits the second time";
          EXPECT_EQ(mixed.step.loss_scale().rule,
                    type == MixedType::f16 ? LossScaling::backoff : LossScaling::off);
        },
        quiet_ranks());
  }
}

}  // namespace

std::vector<BackendCase> backends_under_test() { return {cuda_case}; }

std::vector<BackendCase> narrow_backends() {
  return {
      BackendCase{"CudaBf16", [] { return make_cuda_backend(0, {.mixed_type = MixedType::bf16}); },
                  no_device},
      BackendCase{"CudaF16", [] { return make_cuda_backend(0, {.mixed_type = MixedType::f16}); }, no_device}};
}

}  // namespace nmt::test
