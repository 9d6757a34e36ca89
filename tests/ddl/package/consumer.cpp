// The README's ten lines on a toy problem, with two ranks in one process.
#include <cmath>
#include <cstdio>
#include <ddl/ddl.hpp>
#include <vector>

int main() {
  // Links the parts that jobs need: MPI, sockets, the network.
  if (ddl::Context::from_environment().size() != 1) return 1;
  bool learned = false;
  ddl::run_in_process(2, [&](ddl::Context& context) {
    std::vector<float> weight = {context.is_root() ? 5.0f : -1.0f};
    std::vector<float> gradient(1);
    ddl::broadcast_parameters(context, {{"weight", weight}});
    ddl::GradientReducer reducer(context, {{"weight", gradient}}, {.gradients = ddl::GradientKind::sum});
    ddl::LearningRateScaling scaling(context, [](std::uint64_t) { return 0.1; });
    ddl::ShardedSampler sampler(context, 7, {.seed = 1, .batch_size = 2});
    for (int step = 0; step < 200; ++step) {
      const ddl::ShardedBatch batch = sampler.next();
      gradient[0] = 0;
      for (std::size_t i = 0; i < batch.samples.size(); ++i) gradient[0] += weight[0] - 3.0f;
      reducer.ready(0);
      reducer.wait(static_cast<double>(batch.samples.size()));
      weight[0] -= static_cast<float>(scaling.learning_rate(batch.step)) * gradient[0];
    }
    context.root_only("report", [&] { learned = std::abs(weight[0] - 3.0f) < 1e-4f; });
  });
  std::puts(learned ? "learned" : "not learned");
  return learned ? 0 : 1;
}
