// Work that a backend may record and do again. A device would compute with another batch's sizes or memory.

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

/// Checks that the work that is given with a key is the same each time.
class RecordingBackend final : public WrappedBackend {
 public:
  explicit RecordingBackend(std::unique_ptr<Backend> inner) : WrappedBackend(std::move(inner)) {}

  [[nodiscard]] bool records() const override { return true; }
  void replay(const WorkKey& key, const std::function<void()>& work) override {
    if (is_inside_) return work();
    is_inside_ = true;
    calls_.clear();
    work();
    is_inside_ = false;
    parts_.push_back(key.part);
    const auto [recorded, is_new] = recorded_.try_emplace({key.group, key.part}, calls_);
    again_ += is_new ? 0 : 1;
    EXPECT_EQ(recorded->second, calls_);
  }
  void lstm_cell_forward(const LstmStep& step) override {
    calls_.push_back(fmt::format("at {} and {}", step.gates.data, static_cast<void*>(step.lengths.data)));
    WrappedBackend::lstm_cell_forward(step);
  }
  [[nodiscard]] int again() const noexcept { return again_; }
  [[nodiscard]] std::size_t keys() const noexcept { return recorded_.size(); }
  /// Of the work since the last call.
  [[nodiscard]] std::vector<std::uint64_t> parts() { return std::exchange(parts_, {}); }

 private:
  void before(const Work& work) override {
    calls_.push_back(fmt::format("{} {} {} {}x{}x{}", work.operation, work.flops, work.bytes, work.rows,
                                 work.cols, work.inner));
  }
  void after(const Work&) override {}

  std::vector<std::string> calls_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::string>> recorded_;
  std::vector<std::uint64_t> parts_;
  bool is_inside_ = false;
  int again_ = 0;
};

TEST(Replay, WorkWithTheSameKeyIsTheSame) {
  const Corpus corpus = small_corpus();
  const ModelCase with_attention{"", shape_of(16, true, 2, 2, AttentionKind::scaled_luong), 0.2};
  auto owned = std::make_unique<RecordingBackend>(make_cpu_backend(1));
  RecordingBackend& backend = *owned;
  TestModel model(std::move(owned), with_attention.shape, small_limits(), 0.3);
  for (int time = 0; time < 2; ++time) {
    for (const std::size_t sentences : {1, 2, 4}) {
      const Batch batch(corpus, 0, sentences);
      model.run(batch.view, with_attention);
      model->evaluate(batch.view);
      for (const std::int64_t beam : {1, 3}) {
        SearchModel search(model.model(), beam);
        search.start(batch.view);
        search_some_steps(search, static_cast<std::int64_t>(sentences), beam, [](std::span<const double>) {});
      }
    }
  }
  EXPECT_GT(backend.again(), 0);
  EXPECT_GT(backend.keys(), 6U);
}

// A search would do another layer's work, whose address its layer has after the search before has ended: on a
// GPU, some evaluations gave garbage.
TEST(Replay, PartsOfANetworkHaveTheSameKeysWhereverItIs) {
  const Corpus corpus = small_corpus();
  const ModelCase c{"", shape_of(16, true, 2, 2, AttentionKind::scaled_luong)};
  auto owned = std::make_unique<RecordingBackend>(make_cpu_backend(1));
  RecordingBackend& backend = *owned;
  TestModel model(std::move(owned), c.shape, small_limits(), 0.3);
  const Batch batch(corpus, 0, 2);
  const auto parts_of_a_search = [&](SearchModel& search) {
    search.start(batch.view);
    search_some_steps(search, 2, 3, [](std::span<const double>) {});
    return backend.parts();
  };
  SearchModel first(model.model(), 3), second(model.model(), 3);
  const std::vector<std::uint64_t> parts = parts_of_a_search(first);
  EXPECT_EQ(parts_of_a_search(second), parts);
  // A layer in each direction, the decoder's step, and the best words.
  EXPECT_EQ(std::set<std::uint64_t>(parts.begin(), parts.end()).size(), 4U);
}

// Losses and gradients on devices would depend on the steps that make a batch's shape one that was recorded.
TEST(Replay, PaddedStepsChangeNothing) {
  Corpus corpus = small_corpus();
  corpus.sources[1] = {5, 1, 2, 9, 4};
  corpus.targets[3] = {6, 3, 5, 4, 7};
  const BatchLimits limits{4, 8, 7};
  const Batch batch(corpus, 0, 4);
  for (const ModelCase& c : model_cases()) {
    SCOPED_TRACE(c.name);
    TestModel exact(make_reference_backend(), c.shape, limits);
    TestModel padded(std::make_unique<RecordingBackend>(make_reference_backend()), c.shape, limits);
    const BatchLoss expected = exact.run(batch.view, c), found = padded.run(batch.view, c);
    EXPECT_NEAR(found.smoothed, expected.smoothed, 1e-12 * expected.smoothed);
    EXPECT_NEAR(padded->evaluate(batch.view).smoothed, exact->evaluate(batch.view).smoothed,
                1e-12 * expected.smoothed);
    const std::vector<Values> gradients = padded.gradients(), of_exact = exact.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_TRUE(close(gradients[i], of_exact[i], 1e-12 * (1 + of_exact[i].largest()))) << exact.name(i);
  }
}

// Each new shape is queued call by call and recorded: a run of many shapes would hardly ever replay.
TEST(Replay, BatchesOfSimilarLengthsHaveTheSameKeys) {
  Random random(5);
  Corpus corpus;
  for (int length = 1; length <= 16; ++length) {
    corpus.sources.push_back(random.integers(length, 3, 10));
    corpus.targets.push_back(random.integers(16 - length, 3, 8));
    corpus.samples.push_back(length);
  }
  const ModelCase c{"", shape_of(4, true, 2, 1, AttentionKind::luong)};
  auto owned = std::make_unique<RecordingBackend>(make_cpu_backend(1));
  const RecordingBackend& backend = *owned;
  TestModel model(std::move(owned), c.shape, {1, 16, 17}, 0.3);
  for (std::size_t i = 0; i < 16; ++i) model.run(Batch(corpus, i, i + 1).view, c);
  // The forward pass and five parts of the backward pass for each of 4 shapes, and a loss for each number of
  // words, because a sixteenth of a batch of 16 steps is one row.
  EXPECT_EQ(backend.keys(), 4U * 6U + 16U);
}

}  // namespace
}  // namespace nmt::test
