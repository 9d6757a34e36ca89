// Ranks that are threads, each with an emulated CUDA device, train as ranks on CPUs do.

#include <cmath>
#include <map>
#include <mutex>

#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/backend_test_support.hpp"
#include "nmt_example/small_training.hpp"
#include "nmt_example/training/evaluation.hpp"

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

struct Course {
  std::vector<double> losses;
  std::vector<float> parameters;
  ddl::DataType gradients = ddl::DataType::f32;
};

/// Two ranks' training, on CPUs or on a device each.
Course course_of(const Options& options, bool on_devices, int steps = 6,
                 const ParallelText& text = short_text(200)) {
  Course course;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const auto backend = on_devices ? make_cuda_backend(context.rank()) : make_cpu_backend(1);
        if (on_devices && options.rnn != LstmMethod::automatic) {
          ASSERT_EQ(backend->use_lstm(options.rnn), "");
        }
        SmallTraining training(context, options, *backend, text);
        const Course found{training.losses(steps), training.parameters(),
                           training.model.parameters().gradient_type()};
        if (context.rank() == 0) course = found;
      },
      quiet_ranks());
  return course;
}

// Ranks would reduce gradients to which layers beside each other still add.
TEST(CudaRanks, ReduceGradientsOfLayersThatRunBesideEachOther) {
  Options options = small_training_options();
  options.attention = AttentionKind::none;
  options.num_layers = 4;
  options.rnn = LstmMethod::wavefront;
  const Course expected = course_of(options, false), found = course_of(options, true);
  for (std::size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-4 * expected.losses[i]) << "step " << i + 1;
  EXPECT_EQ(course_of(options, true).parameters, found.parameters) << "other bits the second time";
}

/// Counts the calls that wait for the device.
class CountedDownloads final : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  int downloads = 0;

 private:
  void before(const Work& work) override { downloads += work.operation == "download" ? 1 : 0; }
  void after(const Work&) override {}
};

Options tiny_options() {
  Options options = small_training_options();
  options.num_units = 4;
  options.num_layers = 1;
  options.encoder_type = EncoderType::uni;
  options.dtype = Dtype::mixed;
  options.mixed_type = MixedType::f16;
  options.loss_scaling = LossScaling::log_max;
  return options;
}

// The device would be idle while the host decides how a step goes on.
TEST(CudaRanks, StepsAreQueuedWithoutWaitingForTheDevice) {
  for (const bool sharded : {false, true}) {
    Options options = tiny_options();
    options.optimizer = sharded ? OptimizerKind::lamb : OptimizerKind::adam;
    options.sharded_update = sharded;
    options.ema_decay = 0.9;
    ddl::run_in_process(
        2,
        [&](ddl::Context& context) {
          CountedDownloads counted(make_cuda_backend(context.rank(), {.mixed_type = options.mixed_type}));
          SmallTraining training(context, options, counted);
          training.losses(1);
          counted.downloads = 0;
          for (int i = 0; i < 2; ++i) training.step.queue();
          EXPECT_EQ(counted.downloads, 0) << "sharded: " << sharded;
          training.step.collect();
          EXPECT_GT(counted.downloads, 0);
        },
        quiet_ranks());
  }
}

/// Counts the steps that are given as one piece of work, and those that are queued call by call, to be
/// recorded or not.
class CountedSteps final : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  [[nodiscard]] bool records() const override { return true; }
  void replay(const WorkKey& key, const std::function<void()>& work) override {
    const auto counted = [&] {
      if (key.of_all_ranks) ++queued;
      work();
    };
    if (key.of_all_ranks) ++given;
    inner().replay(key, counted);
  }
  int given = 0, queued = 0;

 private:
  void before(const Work&) override {}
  void after(const Work&) override {}
};

// A step that is launched as one graph would miss other ranks' gradients, or have those of another step's
// words, weight, dropout or learning rate.
TEST(CudaRanks, TakeRecordedStepsAsTheyQueueThem) {
  constexpr int steps = 84;
  // An epoch's seventh step has a pair on one rank alone.
  const ParallelText text = short_text(25);
  Options options = tiny_options();
  options.dtype = Dtype::f32;
  options.loss_scaling = LossScaling::off;
  options.batch_size = 2;
  options.num_buckets = 1;
  options.sparse_embeddings = false;
  const Course expected = course_of(options, false, steps, text);
  for (const bool sharded : {false, true}) {
    options.step_graph = true;
    options.sharded_update = sharded;
    ddl::run_in_process(
        2,
        [&](ddl::Context& context) {
          CountedSteps counted(make_cuda_backend(context.rank()));
          SmallTraining training(context, options, counted, text);
          const std::vector<std::size_t> many(1000);
          Batch larger;
          fill_batch(training.dataset, many, larger);
          std::vector<double> losses;
          while (losses.size() < expected.losses.size()) {
            for (int i = 0; i < 2; ++i) training.step.queue();
            // Moves this rank's memory.
            if (losses.size() == 20 && context.rank() == 0) {
              const void* const before = training.model.workspace();
              training.model.evaluate(view_of(larger));
              EXPECT_NE(training.model.workspace(), before);
            }
            for (const auto& result : training.step.collect())
              losses.push_back(result.report.loss_sum / result.report.target_tokens);
          }
          for (std::size_t i = 0; i < losses.size(); ++i)
            EXPECT_NEAR(losses[i], expected.losses[i], 1e-4 * expected.losses[i]) << "step " << i + 1;
          EXPECT_TRUE(training.step.gradients().can_be_recorded());
          EXPECT_LT(counted.given, steps * 6 / 7 + 1) << "steps of unequal batches are not recorded";
          EXPECT_GE(counted.given - counted.queued, 10) << "launches of graphs";
          std::vector<double> most{static_cast<double>(counted.queued)};
          context.communicator().all_reduce(std::span(most), ddl::ReduceOp::max);
          EXPECT_EQ(counted.queued, most[0]) << "a rank queues what others launch";
        },
        quiet_ranks());
  }
}

// Ranks would scale their losses by gradients that others have, or differ.
TEST(CudaRanks, ShardsFollowTheLargestGradientOfAll) {
  Options options = tiny_options();
  std::map<bool, LossScale> scales;
  std::mutex mutex;
  for (const bool sharded : {false, true}) {
    options.sharded_update = sharded;
    ddl::run_in_process(
        2,
        [&](ddl::Context& context) {
          const auto cuda = make_cuda_backend(context.rank(), {.mixed_type = options.mixed_type});
          SmallTraining training(context, options, *cuda);
          training.losses(2);
          const LossScale scale = training.step.loss_scale();
          const std::lock_guard lock(mutex);
          const auto [other, is_first] = scales.try_emplace(sharded, scale);
          EXPECT_EQ(other->second.mean, scale.mean) << "ranks differ";
        },
        quiet_ranks());
  }
  EXPECT_NE(scales[true].mean, 0);
  EXPECT_NEAR(scales[true].mean, scales[false].mean, 1e-3 * std::abs(scales[false].mean));
}

// Mixed precision would train another model on devices than on CPUs, or send and keep twice the bytes.
TEST(CudaRanks, TrainInMixedPrecisionWithGradientsOf16Bits) {
  for (const auto& [sharded, sparse] : {std::pair(false, false), {true, false}, {false, true}}) {
    Options options = small_training_options();
    options.sharded_update = sharded;
    options.sparse_embeddings = sparse;
    const Course in_f32 = course_of(options, true);
    options.dtype = Dtype::mixed;
    const Course expected = course_of(options, false), found = course_of(options, true);
    EXPECT_EQ(found.gradients, ddl::DataType::bf16);
    EXPECT_EQ(in_f32.gradients, ddl::DataType::f32);
    for (std::size_t i = 0; i < found.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], expected.losses[i], 5e-3 * expected.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(found.losses[i], in_f32.losses[i], 2e-2 * in_f32.losses[i]) << "step " << i + 1;
    }
    EXPECT_LT(found.losses.back(), found.losses.front());
    EXPECT_EQ(course_of(options, true).parameters, found.parameters) << "other bits the second time";
  }
}

}  // namespace
}  // namespace nmt::test
