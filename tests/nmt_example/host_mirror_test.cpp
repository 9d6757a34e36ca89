// Training on a backend whose memory the host cannot access, without a device. Otherwise ranks on devices
// would average stale gradients, start from different models, or save wrong checkpoints.

#include "nmt_example/training/host_mirror.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "nmt_example/hidden_memory_backend.hpp"
#include "nmt_example/small_training.hpp"
#include "nmt_example/training/average.hpp"
#include "support/temporary_directory.hpp"

namespace nmt::test {
namespace {

/// Two tensors [2, 3] and [1, 4] with the values 0 to 5 and 10 to 13.
struct TwoTensors {
  explicit TwoTensors(Backend& backend_) : backend(backend_), block(backend.allocate(10 * sizeof(float))) {
    backend.upload(tensor(0), std::vector<float>{0, 1, 2, 3, 4, 5});
    backend.upload(tensor(1), std::vector<float>{10, 11, 12, 13});
  }
  Tensor tensor(int index) const {
    return index == 0 ? Tensor(block.get(), 2, 3, 3, ddl::DataType::f32)
                      : Tensor(static_cast<float*>(block.get()) + 6, 1, 4, 4, ddl::DataType::f32);
  }
  std::vector<NamedView> views() const { return {{"first", tensor(0)}, {"second", tensor(1)}}; }
  std::vector<float> values(int index) {
    std::vector<float> result(static_cast<std::size_t>(tensor(index).size()));
    backend.download(tensor(index), std::span<float>(result));
    return result;
  }

  Backend& backend;
  std::shared_ptr<void> block;
};

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(HostMirror, IsTheTensorsThemselvesWhereTheHostCanUseThem) {
  const auto backend = make_cpu_backend(1);
  TwoTensors tensors(*backend);
  HostMirror mirror(*backend, tensors.views());
  EXPECT_EQ(mirror.gradients()[0].values.data(), tensors.tensor(0).as<float>());
  EXPECT_EQ(mirror.parameters()[1].values.data(), tensors.tensor(1).as<float>());
  mirror.gradients()[1].values.as<float>()[2] = 99;
  mirror.download();
  EXPECT_EQ(tensors.values(1), (std::vector<float>{10, 11, 99, 13}));
  mirror.upload();
  EXPECT_EQ(tensors.values(0), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(HostMirror, CopiesWhatTheHostCannotUse) {
  const auto backend = make_hidden_memory_backend();
  TwoTensors tensors(*backend);
  HostMirror mirror(*backend, tensors.views());
  const auto on_host = mirror.gradients();
  ASSERT_EQ(on_host.size(), 2u);
  EXPECT_EQ(on_host[0].name, "first");
  EXPECT_EQ(on_host[1].values.data(), on_host[0].values.as<float>().data() + 6)
      << "not one block, so reduced by copies";
  mirror.download(1);
  EXPECT_EQ(copy(on_host[0].values.as<float>()), std::vector<float>(6, 0.0f));
  EXPECT_EQ(copy(on_host[1].values.as<float>()), (std::vector<float>{10, 11, 12, 13}));
  mirror.download();
  EXPECT_EQ(copy(on_host[0].values.as<float>()), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  on_host[0].values.as<float>()[3] = -3;
  on_host[1].values.as<float>()[0] = -10;
  EXPECT_EQ(tensors.values(0)[3], 3.0f);
  mirror.upload();
  EXPECT_EQ(tensors.values(0), (std::vector<float>{0, 1, 2, -3, 4, 5}));
  EXPECT_EQ(tensors.values(1), (std::vector<float>{-10, 11, 12, 13}));
  const auto saved = mirror.tensors();
  EXPECT_EQ(saved[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(saved[0].bytes.size(), 6 * sizeof(float));
  EXPECT_EQ(static_cast<void*>(saved[1].bytes.data()), static_cast<void*>(on_host[1].values.data()));
}

TEST(HostMirror, RefusesWhatItCannotCopy) {
  const auto backend = make_hidden_memory_backend();
  const TwoTensors tensors(*backend);
  const Tensor strided = tensors.tensor(0).col_range(0, 2);
  EXPECT_THROW(HostMirror(*backend, {{"strided", strided}}), ddl::Error);
}

TEST(HostMirror, ABackendsMemoryIsHidden) {
  const auto backend = make_hidden_memory_backend();
  const TwoTensors tensors(*backend);
  EXPECT_DEATH(tensors.tensor(0).as<float>()[0] = 1, "");
}

struct TrainingRun {
  std::vector<double> losses;
  std::vector<float> parameters;
  bool operator==(const TrainingRun&) const = default;
};

TrainingRun train_on(std::unique_ptr<Backend> (*make)(), OptimizerKind optimizer) {
  TrainingRun result;
  std::mutex mutex;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        Options options = small_training_options();
        options.optimizer = optimizer;
        const auto backend = make();
        SmallTraining training(context, options, *backend);
        const TrainingRun run{training.losses(6), training.parameters()};
        if (!context.is_root()) return;
        const std::lock_guard lock(mutex);
        result = run;
      },
      quiet_ranks());
  return result;
}

TEST(HostMirror, TrainingGivesTheSameBitsAsWhereTheHostHasTheMemory) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::lamb, OptimizerKind::novograd}) {
    const TrainingRun expected = train_on([] { return make_cpu_backend(1); }, optimizer);
    const TrainingRun found = train_on(make_hidden_memory_backend, optimizer);
    ASSERT_EQ(found.losses.size(), 6u);
    EXPECT_NE(found.losses.front(), found.losses.back());
    EXPECT_EQ(found.losses, expected.losses) << name_of(optimizer);
    EXPECT_TRUE(found == expected) << name_of(optimizer) << ": other parameters";
  }
}

TEST(HostMirror, CheckpointsGoBetweenBackends) {
  const ddl::test::TemporaryDirectory directory;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const Options options = small_training_options();
        const auto hidden = make_hidden_memory_backend();
        SmallTraining training(context, options, *hidden);
        training.losses(3);
        RunState state;
        state.step = 3;
        state.options_json = to_json(options);
        ddl::Checkpoint checkpoint(context, directory.path());
        save_run(checkpoint, state, training.vocabularies, *hidden, training.model.parameters(),
                 training.optimizer);
        const std::string batches = training.step.sampler_state();
        const std::vector<float> parameters = training.parameters();
        const std::vector<double> losses = training.losses(3);

        const SavedRun saved = newest_run(context, checkpoint).value();
        const auto other_hidden = make_hidden_memory_backend();
        const auto cpu = make_cpu_backend(1);
        for (Backend* backend : {other_hidden.get(), cpu.get()}) {
          SmallTraining resumed(context, options, *backend);
          EXPECT_NE(resumed.parameters(), parameters);
          saved.restore(*backend, resumed.model.parameters(), resumed.optimizer);
          EXPECT_EQ(resumed.parameters(), parameters) << backend->name();
          resumed.step.seek(3, batches);
          EXPECT_EQ(resumed.losses(3), losses) << backend->name() << ": moments of the optimiser";
        }
      },
      quiet_ranks());
}

// An average would be of a device's parameters and of nothing, or training would go on with the average.
TEST(HostMirror, AveragesAreOfWhatTheHostCannotUse) {
  const ddl::test::TemporaryDirectory directory;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const Options options = small_training_options();
        const auto hidden = make_hidden_memory_backend();
        SmallTraining training(context, options, *hidden);
        RunState state;
        state.options_json = to_json(options);
        ddl::Checkpoint checkpoint(context, directory.path());
        const auto path =
            save_model(checkpoint, state, training.vocabularies, *hidden, training.model.parameters());
        const std::vector<float> before = training.parameters();
        training.losses(2);
        const std::vector<float> now = training.parameters();
        ASSERT_NE(now, before);
        {
          const AverageOfCheckpoints average(context, *hidden, training.model.parameters(),
                                             std::span(&path, 1));
          const std::vector<float> mean = training.parameters();
          for (std::size_t i = 0; i < mean.size(); ++i) {
            ASSERT_EQ(mean[i], static_cast<float>((double{before[i]} + double{now[i]}) / 2)) << i;
          }
        }
        EXPECT_EQ(training.parameters(), now);
      },
      quiet_ranks());
}

// On devices, steps that the host queues before it knows how the ones before them ended would train another
// model than steps one by one: with other learning rates after a step that was left out, for example.
TEST(HostMirror, QueuedStepsAreThoseOfOneByOne) {
  Options options = small_training_options();
  options.loss_scaling = LossScaling::backoff;
  options.loss_scale = 0x1p126;
  options.loss_scale_window = 4;
  options.output_bias = true;  // whose gradients are sums of many words'
  options.warmup_steps = 5;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const auto cpu = make_cpu_backend(1), hidden = make_hidden_memory_backend();
        SmallTraining one_by_one(context, options, *cpu), queued(context, options, *hidden);
        EXPECT_EQ(one_by_one.step.room(), 1U);
        std::vector<TrainingStep::Result> expected, found;
        for (int i = 0; i < 20; ++i) expected.push_back(one_by_one.step.run());
        ASSERT_GT(queued.step.room(), 3U);
        while (found.size() < expected.size()) {
          for (std::size_t end = found.size(); end < expected.size() && queued.step.room() > 0; ++end)
            queued.step.queue();
          for (TrainingStep::Result& result : queued.step.collect(context.rank() == 1)) {
            EXPECT_TRUE(result.stop);
            found.push_back(std::move(result));
          }
        }
        ASSERT_EQ(found.size(), expected.size());
        bool left_out = false;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(found[i].left_out, expected[i].left_out) << i;
          EXPECT_EQ(found[i].diverged, expected[i].diverged) << i;
          EXPECT_EQ(found[i].report.step, expected[i].report.step) << i;
          EXPECT_EQ(found[i].report.learning_rate, expected[i].report.learning_rate) << i;
          EXPECT_EQ(found[i].report.loss_sum, expected[i].report.loss_sum) << i;
          EXPECT_EQ(found[i].report.gradient_norm, expected[i].report.gradient_norm) << i;
          EXPECT_EQ(found[i].report.words, expected[i].report.words) << i;
          left_out = left_out || !expected[i].left_out.empty();
        }
        EXPECT_TRUE(left_out);
        EXPECT_GT(one_by_one.step.done(), 5U);
        EXPECT_EQ(queued.step.done(), one_by_one.step.done());
        EXPECT_EQ(queued.parameters(), one_by_one.parameters());
      },
      quiet_ranks());
}

// Devices would wait for hosts that look at every few steps, or a signal for steps that take minutes.
TEST(HostMirror, AsManyStepsAreQueuedAsStatisticsAndSignalsAllow) {
  for (const int steps_per_stats : {3, 100}) {
    Options options = small_training_options();
    options.steps_per_stats = steps_per_stats;
    options.num_units = 4;
    ddl::run_in_process(
        2,
        [&](ddl::Context& context) {
          const auto hidden = make_hidden_memory_backend();
          SmallTraining training(context, options, *hidden);
          EXPECT_EQ(training.step.room(), static_cast<std::size_t>(std::min(8, steps_per_stats)));
          training.step.queue();
          // A rank that takes its time counts for all.
          if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
          training.step.collect();
          EXPECT_EQ(training.step.room(), 1U);
          training.step.run();
          EXPECT_GT(training.step.room(), 1U);
          EXPECT_LE(training.step.room(), static_cast<std::size_t>(steps_per_stats));
        },
        quiet_ranks());
  }
}

// Parameters would be those of a step after the one that training diverged in.
TEST(HostMirror, NoStepIsTakenAfterOneThatDiverged) {
  Options options = small_training_options();
  options.loss_scaling = LossScaling::constant;
  options.loss_scale = 0x1p127;
  options.output_bias = true;
  ddl::run_in_process(
      1,
      [&](ddl::Context& context) {
        const auto hidden = make_hidden_memory_backend();
        SmallTraining training(context, options, *hidden);
        const std::vector<float> before = training.parameters();
        std::vector<TrainingStep::Result> results;
        while (results.size() < 60 && (results.empty() || results.back().diverged.empty())) {
          while (training.step.room() > 0) training.step.queue();
          for (TrainingStep::Result& result : training.step.collect()) results.push_back(std::move(result));
        }
        ASSERT_EQ(results.size(), 51U);
        EXPECT_NE(results.back().diverged.find("at step 1 the loss"), std::string::npos)
            << results.back().diverged;
        EXPECT_EQ(training.parameters(), before);
        EXPECT_EQ(training.step.done(), 0U);
      },
      quiet_ranks());
}

}  // namespace
}  // namespace nmt::test
