// Whether rows of products' matrices begin at multiples of 16 bytes where the model's sizes let them,
// whatever the vocabulary. Tensor cores need that: else a GPU would compute the projection several times
// slower.

#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

/// Counts products' matrices, and those whose rows are not aligned.
class AlignmentBackend final : public WrappedBackend {
 public:
  AlignmentBackend() : WrappedBackend(make_cpu_backend(1)) {}

  void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
            const Tensor& c) override {
    check(a);
    check(b);
    check(c);
    inner().gemm(ta, tb, a, b, accumulate, c);
  }
  void multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                const Tensor& c) override {
    check(a);
    check(parameter);
    check(c);
    inner().multiply(a, tb, parameter, accumulate, c);
  }

  int checked = 0, unaligned = 0;

 private:
  void check(const Tensor& x) {
    ++checked;
    const auto begin = reinterpret_cast<std::uintptr_t>(x.data);
    const std::size_t bytes = static_cast<std::size_t>(x.stride) * ddl::size_of(x.type);
    if (begin % 16 != 0 || (x.rows > 1 && bytes % 16 != 0)) ++unaligned;
  }
  void before(const Work&) override {}
  void after(const Work&) override {}
};

struct AlignmentCase {
  const char* name;
  bool tied;
  std::int64_t sampled_words;
};

void PrintTo(const AlignmentCase& c, std::ostream* out) { *out << c.name; }

class AlignedProducts : public testing::TestWithParam<AlignmentCase> {};

TEST_P(AlignedProducts, OfAnOddVocabulary) {
  ModelCase c{"", shape_of(8, true, 2, 2, AttentionKind::scaled_luong)};
  c.shape.tie_output = GetParam().tied;
  c.shape.sampled_words = GetParam().sampled_words;
  constexpr ddl::DataType type = ddl::DataType::bf16;
  auto made = std::make_unique<AlignmentBackend>();
  AlignmentBackend& backend = *made;
  TestModel model(std::move(made), c.shape, small_limits(), 0.3, {.activations = type, .gradients = type});
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  model.run(batch.view, c);
  SearchModel search(model.model(), 2);
  search.start(batch.view);
  search.step(std::vector{0, 1, 2, 3}, std::vector{1, 1, 1, 1});
  EXPECT_FALSE(search.best_words(2).empty());
  EXPECT_EQ(search.log_probabilities().rows, 4);
  EXPECT_GT(backend.checked, 100);
  EXPECT_EQ(backend.unaligned, 0) << "of " << backend.checked;
}

INSTANTIATE_TEST_SUITE_P(Outputs, AlignedProducts,
                         testing::Values(AlignmentCase{"All", false, 0}, AlignmentCase{"Tied", true, 0},
                                         AlignmentCase{"Sampled", false, 4},
                                         AlignmentCase{"SampledTied", true, 4}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nmt::test
