// Models whose layers go over sequences in chunks, beside each other. Otherwise losses and gradients on
// devices would depend on which layer is faster.

#include <vector>

#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

/// Does work that may run side by side in a random one of the orders that are allowed.
class ShuffledBackend final : public WrappedBackend {
 public:
  ShuffledBackend(std::int64_t chunk_steps, std::uint32_t seed)
      : WrappedBackend(make_reference_backend()), chunk_steps_(chunk_steps), random_(seed) {}

  [[nodiscard]] std::int64_t chunk_steps(std::int64_t) const override { return chunk_steps_; }
  void side_by_side(const std::function<void()>& first, const std::function<void()>& second) override {
    const bool is_turned = random_.integers(1, 0, 1).front() == 1;
    (is_turned ? second : first)();
    (is_turned ? first : second)();
  }
  void wavefront(std::size_t layers, std::size_t chunks,
                 const std::function<void(std::size_t, std::size_t)>& work) override {
    ++waves_;
    std::vector<std::size_t> done(layers);
    while (done.back() < chunks) {
      const auto drawn = random_.integers(1, 0, static_cast<std::int32_t>(layers) - 1).front();
      const auto layer = static_cast<std::size_t>(drawn);
      if (done[layer] == chunks || (layer > 0 && done[layer - 1] == done[layer])) continue;
      work(layer, done[layer]++);
    }
  }
  [[nodiscard]] int waves() const noexcept { return waves_; }

 private:
  void before(const Work&) override {}
  void after(const Work&) override {}

  std::int64_t chunk_steps_;
  Random random_;
  int waves_ = 0;
};

TEST(Wavefront, NoNumberDependsOnChunksAndOnWhoComesFirst) {
  Corpus corpus = small_corpus();
  corpus.sources[1] = {5, 1, 2, 9, 4};
  corpus.targets[3] = {6, 3, 5, 4, 7};
  const BatchLimits limits{4, 5, 6};
  const Batch batch(corpus, 0, 4);
  int waves = 0;
  std::uint32_t seed = 0;
  for (const ModelCase& c : model_cases()) {
    TestModel whole(make_reference_backend(), c.shape, limits);
    const BatchLoss expected = whole.run(batch.view, c);
    const std::vector<Values> gradients = whole.gradients();
    for (const std::int64_t chunk_steps : {1, 2, 4}) {
      SCOPED_TRACE(testing::Message() << c.name << ", chunks of " << chunk_steps);
      auto owned = std::make_unique<ShuffledBackend>(chunk_steps, ++seed);
      const ShuffledBackend& backend = *owned;
      TestModel shuffled(std::move(owned), c.shape, limits);
      for (int time = 0; time < 3; ++time) {
        EXPECT_EQ(shuffled.run(batch.view, c).smoothed, expected.smoothed);
        const std::vector<Values> found = shuffled.gradients();
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(close(found[i], gradients[i], 0)) << whole.name(i);
      }
      EXPECT_EQ(shuffled->evaluate(batch.view).smoothed, whole->evaluate(batch.view).smoothed);
      waves += backend.waves();
    }
  }
  EXPECT_GT(waves, 1000);
}

// A gradient would be reduced before it is complete.
TEST(Wavefront, GradientsAreReportedFromTheTopWhenTheyAreFinal) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  const ModelCase c{"", shape_of(4, false, 4, 4, AttentionKind::none), 0.2};
  TestModel whole(make_reference_backend(), c.shape, small_limits());
  TestModel shuffled(std::make_unique<ShuffledBackend>(1, 5), c.shape, small_limits());
  std::vector<std::vector<std::size_t>> orders;
  for (TestModel* const model : {&whole, &shuffled}) {
    std::vector<std::size_t> order;
    std::vector<Values> when_ready(model->count());
    model->run(batch.view, c, [&](std::size_t i) {
      order.push_back(i);
      when_ready[i] = model->memory().read(model->model().parameters().gradient(i));
    });
    const std::vector<Values> in_the_end = model->gradients();
    for (std::size_t i = 0; i < in_the_end.size(); ++i)
      EXPECT_TRUE(close(when_ready[i], in_the_end[i], 0)) << model->name(i);
    orders.push_back(order);
  }
  EXPECT_EQ(orders[0], orders[1]);
}

}  // namespace
}  // namespace nmt::test
