// Work that a CUDA backend queues on several streams waits for what it needs: on an emulated device that does
// everything that nothing holds back in the order of streams, or in the opposite one. Otherwise numbers would
// depend on how busy a GPU is.

#include "device/emulated/emulated_cuda.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

class Lanes : public testing::TestWithParam<emulated_cuda::Turns> {
 protected:
  Lanes() { emulated_cuda::machine().turns = GetParam(); }
  ~Lanes() override { emulated_cuda::machine().turns = emulated_cuda::Turns::all; }
};

/// Each has memory of its own, which products that run beside each other must not share.
std::size_t lanes_of(const Backend& backend) { return backend.product_bytes() / (std::size_t{32} << 20); }

/// Does the work several times; as a part of recorded work, or by itself.
template <typename F>
void several_times(Backend& backend, bool is_recorded, F work) {
  for (int time = 0; time < 4; ++time) {
    SCOPED_TRACE(testing::Message() << (is_recorded ? "recorded" : "queued") << ", time " << time + 1);
    work([&](const std::function<void()>& queue) { is_recorded ? backend.replay({1, 0}, queue) : queue(); });
  }
}

TEST_P(Lanes, LayersOfAWavefrontWaitForEachOther) {
  constexpr std::int64_t layers = 4, chunks = 5;
  for (const bool is_recorded : {false, true}) {
    const auto cuda = make_cuda_backend(0);
    Memory memory(*cuda, Layout::contiguous);
    // A border of ones, and the numbers of ways from it to each place.
    Values border(layers + 1, chunks + 1), expected(layers + 1, chunks + 1);
    for (std::int64_t l = 0; l <= layers; ++l) border(l, 0) = 1;
    for (std::int64_t c = 0; c <= chunks; ++c) border(0, c) = 1;
    for (std::int64_t l = 0; l <= layers; ++l)
      for (std::int64_t c = 0; c <= chunks; ++c)
        expected(l, c) = border(l, c) + (l > 0 && c > 0 ? expected(l - 1, c) + expected(l, c - 1) : 0);
    const Tensor from = memory.tensor(border), ways = memory.tensor(border), found = memory.tensor(border);
    const auto at = [&](std::int64_t l, std::int64_t c) { return ways.row_range(l, 1).col_range(c, 1); };
    several_times(*cuda, is_recorded, [&](const auto& queued) {
      queued([&] {
        cuda->copy(from, ways);
        cuda->wavefront(layers, chunks, [&](std::size_t layer, std::size_t chunk) {
          const auto l = static_cast<std::int64_t>(layer) + 1, c = static_cast<std::int64_t>(chunk) + 1;
          cuda->add(at(l - 1, c), at(l, c));
          cuda->add(at(l, c - 1), at(l, c));
        });
        cuda->copy(ways, found);
      });
      EXPECT_TRUE(close(memory.read(found), expected, 0));
    });
    EXPECT_EQ(lanes_of(*cuda), 4u);
  }
}

TEST_P(Lanes, WorkSideBySideWaitsForWhatIsBeforeAndIsWaitedFor) {
  for (const bool is_recorded : {false, true}) {
    const auto cuda = make_cuda_backend(0);
    Memory memory(*cuda, Layout::contiguous);
    const Values twos = Values(1, 50).map([](double) { return 2; });
    const Tensor from = memory.tensor(twos), found = memory.tensor(twos);
    const Tensor x = memory.tensor(twos), y = memory.tensor(twos), z = memory.tensor(twos);
    several_times(*cuda, is_recorded, [&](const auto& queued) {
      queued([&] {
        for (const Tensor& tensor : {x, y, z}) cuda->copy(from, tensor);
        const auto doubled = [&](const Tensor& tensor) { return [&] { cuda->add(tensor, tensor); }; };
        cuda->side_by_side([&] { cuda->side_by_side(doubled(x), doubled(y)); }, doubled(z));
        cuda->copy(x, found);
        cuda->add(y, found);
        cuda->add(z, found);
      });
      EXPECT_TRUE(close(memory.read(found), twos.times(6), 0));
    });
    EXPECT_EQ(lanes_of(*cuda), 3u);
  }
}

// The reducer would take gradients before lanes have added to them, or the next step would overwrite what
// they read.
TEST_P(Lanes, StepsOfModelsAreThoseOfTheHost) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  ModelCase residual{"residual", shape_of(4, true, 6, 3, AttentionKind::none), 0.2};
  residual.shape.residual = true;
  ModelCase nvidia = gnmt_case("nvidia", 4, AttentionKind::normed_bahdanau, true);
  nvidia.shape.residual = true;
  nvidia.shape.feed_context = nvidia.shape.pass_hidden_state = false;
  for (const ModelCase& c : {ModelCase{"article", shape_of(4, true, 4, 4, AttentionKind::none), 0.2},
                             residual, nvidia, gnmt_case("gnmt", 4, AttentionKind::scaled_luong, false),
                             ModelCase{"one direction", shape_of(4, false, 3, 3, AttentionKind::luong)}}) {
    SCOPED_TRACE(c.name);
    auto cuda = make_cuda_backend(0);
    ASSERT_EQ(cuda->use_lstm(LstmMethod::wavefront), "");
    TestModel on_cuda(std::move(cuda), c.shape, small_limits(), 0.3),
        on_cpu(make_cpu_backend(1), c.shape, small_limits(), 0.3);
    const double expected = on_cpu.run(batch.view, c).smoothed;
    const std::vector<Values> of_cpu = on_cpu.gradients();
    std::vector<Values> first;
    for (int time = 0; time < 4; ++time) {
      SCOPED_TRACE(time);
      EXPECT_NEAR(on_cuda.run(batch.view, c).smoothed, expected, 1e-5 * expected);
      const std::vector<Values> gradients = on_cuda.gradients();
      if (first.empty()) first = gradients;
      for (std::size_t p = 0; p < gradients.size(); ++p) {
        EXPECT_TRUE(close(gradients[p], of_cpu[p], 1e-4 * (0.1 + of_cpu[p].largest()))) << on_cpu.name(p);
        EXPECT_TRUE(close(gradients[p], first[p], 0)) << on_cpu.name(p) << " has other bits";
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<emulated_cuda::Turns>& test) {
  switch (test.param) {
    case emulated_cuda::Turns::oldest_first:
      return "OldestFirst";
    case emulated_cuda::Turns::newest_first:
      return "NewestFirst";
    case emulated_cuda::Turns::all:
      break;
  }
  return "All";
}

INSTANTIATE_TEST_SUITE_P(Turns, Lanes,
                         testing::Values(emulated_cuda::Turns::all, emulated_cuda::Turns::oldest_first,
                                         emulated_cuda::Turns::newest_first),
                         name_of);

}  // namespace
}  // namespace nmt::test
