// Work that a backend may record and do again. A device would compute with another batch's sizes or memory.

#include <fmt/format.h>

#include <map>

#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

/// Checks that the work that is given with a key is the same each time.
class RecordingBackend final : public WrappedBackend {
 public:
  RecordingBackend() : WrappedBackend(make_cpu_backend(1)) {}

  void replay(std::uint64_t key, const std::function<void()>& work) override {
    calls_.clear();
    work();
    const auto [recorded, is_new] = recorded_.try_emplace(key, calls_);
    again_ += is_new ? 0 : 1;
    EXPECT_EQ(recorded->second, calls_);
  }
  void lstm_cell_forward(const LstmStep& step) override {
    calls_.push_back(fmt::format("at {} and {}", step.gates.data, static_cast<void*>(step.lengths.data)));
    WrappedBackend::lstm_cell_forward(step);
  }
  [[nodiscard]] int again() const noexcept { return again_; }
  [[nodiscard]] std::size_t keys() const noexcept { return recorded_.size(); }

 private:
  void before(const Work& work) override {
    calls_.push_back(fmt::format("{} {} {} {}x{}x{}", work.operation, work.flops, work.bytes, work.rows,
                                 work.cols, work.inner));
  }
  void after(const Work&) override {}

  std::vector<std::string> calls_;
  std::map<std::uint64_t, std::vector<std::string>> recorded_;
  int again_ = 0;
};

TEST(Replay, WorkWithTheSameKeyIsTheSame) {
  const Corpus corpus = small_corpus();
  const ModelCase with_attention{"", shape_of(16, true, 2, 2, AttentionKind::scaled_luong), 0.2};
  auto owned = std::make_unique<RecordingBackend>();
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
      }
    }
  }
  EXPECT_GT(backend.again(), 0);
  EXPECT_GT(backend.keys(), 6U);
}

}  // namespace
}  // namespace nmt::test
