#include "ddl/training_state.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/error.hpp"
#include "support/job_options.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

// Runs that resume from checkpoints of a model.

namespace ddl {
namespace {

/// A least-squares trainer: memory, model and a step.
class Trainer {
 public:
  Trainer(const Context& context, DataType wire)
      : narrow_(wire != DataType::f32),
        model_({{.name = "weights", .values = weights_, .gradient = gradient_, .shape = {4, 75}},
                {"momentum", momentum_},
                {"scale", scale_, narrow_ ? Elements() : Elements(scale_gradient_)}}),
        reducer_(context, gradients_of(model_),
                 {.gradients = GradientKind::sum, .bucket_bytes = 400, .wire = wire}),
        sampler_(context, 60, {.seed = 3, .batch_size = 2}) {
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = static_cast<float>(i + 1) / 300;
    broadcast_parameters(context, model_);
  }

  [[nodiscard]] TrainingState state() { return {model_, &reducer_, &sampler_}; }

  void step() {
    const ShardedBatch batch = sampler_.next();
    gradient_.assign(gradient_.size(), 0);
    scale_gradient_[0] = 0;
    for (const std::size_t sample : batch.samples) {
      for (std::size_t i = 0; i < weights_.size(); ++i) {
        gradient_[i] += weights_[i] - 1 / static_cast<float>(1 + (sample + i) % 7);
      }
      scale_gradient_[0] += scale_[0] - static_cast<double>(sample);
    }
    if (!narrow_) reducer_.ready(1);  // f64 cannot travel in 16 bits
    reducer_.ready(0);
    reducer_.wait(static_cast<double>(batch.samples.size()));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      momentum_[i] = 0.9f * momentum_[i] + gradient_[i];
      weights_[i] -= 0.01f * momentum_[i];
    }
    if (!narrow_) scale_[0] -= 0.01 * scale_gradient_[0];
  }

  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all(weights_.begin(), weights_.end());
    all.insert(all.end(), momentum_.begin(), momentum_.end());
    all.push_back(scale_[0]);
    return all;
  }

 private:
  bool narrow_;
  std::vector<float> weights_ = std::vector<float>(300);
  std::vector<float> gradient_ = std::vector<float>(300);
  std::vector<float> momentum_ = std::vector<float>(300);
  std::vector<double> scale_ = {2};
  std::vector<double> scale_gradient_ = {0};
  Model model_;
  GradientReducer reducer_;
  ShardedSampler sampler_;
};

class TrainingStateTest : public testing::Test {
 protected:
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_.path(); }

 private:
  test::TemporaryDirectory directory_;
};

// A resumed run would use other samples or other buckets, or lose the rounding errors of its wires.
TEST_F(TrainingStateTest, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  for (const DataType wire : {DataType::f32, DataType::bf16}) {
    run_in_process(
        4,
        [&](Context& context) {
          Checkpoint checkpoint(context, directory() / std::string(to_string(wire)));
          Trainer through(context, wire);
          for (int step = 0; step < 4; ++step) through.step();
          checkpoint.save(4, contents_of(through.state()));
          for (int step = 0; step < 9; ++step) through.step();

          Trainer resumed(context, wire);
          const auto saved = checkpoint.newest();
          ASSERT_TRUE(saved);
          restore(*saved, resumed.state());
          for (int step = 0; step < 9; ++step) resumed.step();
          EXPECT_EQ(resumed.values(), through.values());
        },
        test::on_hosts({"a", "a", "b", "b"}));
  }
}

// Training could not continue with the machines that are left after a failure.
TEST_F(TrainingStateTest, AnotherNumberOfRanksGoesOnFromIt) {
  std::vector<double> saved_values;
  run_in_process(3, [&](Context& context) {
    Checkpoint checkpoint(context, directory());
    Trainer trainer(context, DataType::f32);
    for (int step = 0; step < 4; ++step) trainer.step();
    checkpoint.save(4, contents_of(trainer.state()));
    if (context.is_root()) saved_values = trainer.values();
  });
  run_in_process(2, [&](Context& context) {
    Checkpoint checkpoint(context, directory());
    Trainer trainer(context, DataType::f32);
    restore(*checkpoint.newest(), trainer.state());
    EXPECT_EQ(trainer.values(), saved_values);
    trainer.step();
  });
}

// A checkpoint of another program would be read as one of this program.
TEST_F(TrainingStateTest, WrongOnesAreRefused) {
  run_in_process(2, [&](Context& context) {
    std::vector<float> values(3);
    std::vector<float> gradient(2);
    test::expect_error(ErrorCode::invalid_argument, {"'w' has 3 elements and a gradient of 2"}, [&] {
      static_cast<void>(gradients_of({{"w", values, gradient}}));
    });
    Checkpoint checkpoint(context, directory());
    const Model model = {{"w", values}};
    checkpoint.save(1, contents_of({model}));
    Trainer trainer(context, DataType::f32);
    test::expect_error(ErrorCode::mismatch, {"weights"},
                       [&] { restore(*checkpoint.newest(), trainer.state()); });
    restore(*checkpoint.newest(), {model});
    ShardedSampler sampler(context, 10, {});
    test::expect_error(ErrorCode::mismatch, {"no file 'sampler.json'"},
                       [&] { restore(*checkpoint.newest(), {.model = model, .sampler = &sampler}); });
  });
}

}  // namespace
}  // namespace ddl
