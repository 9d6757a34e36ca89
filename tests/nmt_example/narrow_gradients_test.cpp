// Operations whose results are gradients of 16 bits: they are added up in fp32 and rounded once, and the
// update reads them without another rounding.

#include "ddl/float16.hpp"
#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

class NarrowGradients : public testing::TestWithParam<BackendCase> {
 protected:
  Tensor narrow(const Values& values) {
    return memory_.tensor(values, Layout::contiguous, backend_->narrow_type());
  }
  /// The same values as the 16-bit type has them.
  [[nodiscard]] Values rounded(const Values& values) const {
    const bool is_f16 = backend_->narrow_type() == ddl::DataType::f16;
    return values.map([&](double x) {
      const auto value = static_cast<float>(x);
      return static_cast<double>(is_f16 ? static_cast<float>(ddl::float16(value))
                                        : static_cast<float>(ddl::bfloat16(value)));
    });
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(GetParam());
  Memory memory_{*backend_, Layout::contiguous};
  Random random_{11};
};

// Gradients of frequent words, biases and scales would lose all that is small beside the sum so far.
TEST_P(NarrowGradients, SumsAreRoundedOnce) {
  constexpr double small = 0x1p-12;  // is lost beside 1, alone
  const Values ones(1, 24, 1), smalls(64, 24, small);
  const std::vector<std::int32_t> words(64, 0);
  Values table = Values(2, 24, 1);

  const Tensor of_bias = narrow(ones), of_table = narrow(table), of_kernel = narrow(ones);
  backend_->add_column_sums(memory_.tensor(smalls), of_bias);
  backend_->embedding_backward(memory_.tensor(smalls), memory_.indices(words), of_table);
  backend_->gemm(Transpose::yes, Transpose::no, narrow(Values(64, 1, 1)), narrow(smalls), true, of_kernel);
  for (const Tensor& sums : {of_bias, of_table.row_range(0, 1), of_kernel})
    EXPECT_TRUE(close(memory_.read(sums), Values(1, 24, 1 + 64 * small), 0));
  EXPECT_TRUE(close(memory_.read(of_table.row_range(1, 1)), ones, 0));
}

// Normed attention would have other gradients than with 32 bits.
TEST_P(NarrowGradients, NormedVectorsAreThoseOf32Bits) {
  const Values v = random_.values(1, 20), g = random_.values(1, 1), d_out = random_.values(1, 20);
  const Values d_v = rounded(random_.values(1, 20)), d_g = rounded(random_.values(1, 1));
  std::vector<std::vector<Values>> found;
  for (const bool is_narrow : {false, true}) {
    const auto gradient = [&](const Values& x) { return is_narrow ? narrow(x) : memory_.tensor(x); };
    const Tensor of_v = gradient(d_v), of_g = gradient(d_g);
    backend_->scaled_direction_backward(memory_.tensor(v), memory_.tensor(g), memory_.tensor(d_out), of_v,
                                        of_g);
    found.push_back({memory_.read(of_v), memory_.read(of_g)});
  }
  for (std::size_t i = 0; i < found[0].size(); ++i)
    EXPECT_TRUE(close(found[1][i], rounded(found[0][i]), 0)) << "output " << i;
}

// Mixed precision would train with other steps, clip or scale by a wrong largest gradient, or add the next
// step's gradients to these.
TEST_P(NarrowGradients, UpdatesAreThoseOf32Bits) {
  constexpr std::int64_t n = 40'000;
  const Values x = random_.values(1, n), m = random_.values(1, n), v = random_.values(1, n, 0.1, 1);
  const Values gradients = rounded(random_.values(1, n));
  for (const UpdateRule rule :
       {UpdateRule::norms, UpdateRule::sgd, UpdateRule::momentum, UpdateRule::nesterov, UpdateRule::adam,
        UpdateRule::lamb_moments, UpdateRule::lamb_step}) {
    for (const bool zero : {false, true}) {
      std::vector<std::vector<Values>> found;
      for (const bool is_narrow : {false, true}) {
        UpdateTensors tensors{.values = memory_.tensor(x),
                              .gradients = is_narrow ? narrow(gradients) : memory_.tensor(gradients),
                              .m = memory_.tensor(m),
                              .v = memory_.tensor(v),
                              .sums = memory_.sums(2)};
        const Tensor largest = memory_.sums(1);
        backend_->largest_magnitude(tensors.gradients, largest);
        backend_->update(rule, tensors,
                         {.learning_rate = 0.1,
                          .gradient_scale = 0.37,
                          .weight_decay = 0.01,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .epsilon = 1e-6,
                          .step = 3,
                          .zero_gradients = zero});
        auto& results = found.emplace_back();
        for (const Tensor& result :
             {largest, tensors.values, tensors.gradients, tensors.m, tensors.v, tensors.sums})
          results.push_back(memory_.read(result));
      }
      // Sums of squares are added up in another order.
      for (std::size_t i = 0; i < found[0].size(); ++i)
        EXPECT_TRUE(close(found[1][i], found[0][i], i == 5 ? 1e-12 * found[0][i].largest() : 0))
            << "rule " << static_cast<int>(rule) << ", output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowGradients, testing::ValuesIn(narrow_backends()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nmt::test
