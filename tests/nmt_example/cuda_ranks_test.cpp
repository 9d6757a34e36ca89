// Ranks that are threads, each with an emulated CUDA device, train as ranks on CPUs do.

#include "nmt_example/backend_test_support.hpp"
#include "nmt_example/small_training.hpp"

namespace nmt::test {
namespace {

// Ranks would divide their parts of a layer by norms of these alone.
TEST(CudaRanks, UpdateTheirPartsByNormsOfTheWhole) {
  constexpr int steps = 2;
  Options options = small_training_options();
  options.optimizer = OptimizerKind::novograd;
  options.learning_rate = 0.02;
  std::vector<float> expected;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const auto cpu = make_cpu_backend(1);
        SmallTraining training(context, options, *cpu);
        training.losses(steps);
        if (context.rank() == 0) expected = training.parameters();
      },
      quiet_ranks());
  options.sharded_update = true;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const auto cuda = make_cuda_backend(context.rank());
        SmallTraining training(context, options, *cuda);
        EXPECT_EQ(training.step.gradients().description().substr(0, 3), "on ");
        training.losses(steps);
        const std::vector<float> found = training.parameters();
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], expected[i], 1e-5) << "element " << i;
      },
      quiet_ranks());
}

}  // namespace
}  // namespace nmt::test
