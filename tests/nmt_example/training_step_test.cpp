// The training step by itself.

#include "nmt_example/training/training_step.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/small_training.hpp"
#include "nmt_example/training/moving_average.hpp"
#include "nmt_example/training/setup.hpp"
#include "support/allocation_count.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

/// One rank's part of a run, without files.
struct RankRun {
  RankRun(ddl::Context& context, const Options& options)
      : text(number_corpus(CorpusSplit::train, 200, 3)),
        vocabulary(Vocabulary::train(text.source, 60)),
        target(Vocabulary::train(text.target, 60)),
        dataset(encode(text, vocabulary, target, 30, 30)),
        backend(make_cpu_backend(1)),
        model(*backend, model_shape(options, vocabulary.size(), target.size()),
              {options.batch_size, static_cast<std::int64_t>(dataset.longest_source()),
               static_cast<std::int64_t>(dataset.longest_target()) + 1},
              nullptr, model_types(options, *backend)),
        optimizer(*backend, model.parameters(), options),
        average(*backend, model.parameters()),
        step(context, options, dataset, *backend, nullptr, model, optimizer, nullptr,
             options.ema_decay > 0 ? &average : nullptr) {
    model.parameters().initialize(*backend, InitOp::uniform, 0.1, 1);
  }

  ParallelText text;
  Vocabulary vocabulary, target;
  Dataset dataset;
  std::unique_ptr<Backend> backend;
  Model model;
  Optimizer optimizer;
  MovingAverage average;
  TrainingStep step;
};

ddl::InProcessOptions quiet(std::vector<std::string> hosts = {}) {
  ddl::InProcessOptions settings = ddl::test::on_hosts(std::move(hosts));
  settings.context.debug_level = 0;
  return settings;
}

// Steps would randomly take locks and page faults on every rank, and the slowest rank sets the pace.
TEST(TrainingStep, AllocatesNothingButForBuckets) {
#ifdef DDL_SANITIZED
  GTEST_SKIP() << "a sanitizer has its own operator new";
#endif
  for (const auto& [attention, optimizer] : {std::pair{AttentionKind::scaled_luong, OptimizerKind::adam},
                                             std::pair{AttentionKind::none, OptimizerKind::sgd}}) {
    for (const auto& hosts : {std::vector<std::string>{"a"}, {"a", "a"}, {"a", "b", "a"}}) {
      Options o = test::small_training_options();
      o.attention = attention;
      o.optimizer = optimizer;
      if (optimizer == OptimizerKind::sgd) o.num_sampled_softmax = 20;
      const auto ranks = static_cast<int>(hosts.size());
      ddl::run_in_process(
          ranks,
          [&](ddl::Context& context) {
            RankRun run(context, o);
            const std::size_t epoch = run.step.phases().steps_per_epoch();
            for (std::size_t i = 0; i < 2 * epoch; ++i) run.step.run();
            // First uses still allocate memory, so the smallest count of several stretches is taken.
            long fewest = std::numeric_limits<long>::max();
            for (int stretch = 0; stretch < 4; ++stretch) {
              context.communicator().barrier();
              const long before = ddl::test::allocation_count();
              ASSERT_GT(before, 0) << "allocations are not counted";
              for (std::size_t i = 0; i < epoch; ++i) run.step.run();
              context.communicator().barrier();
              fewest = std::min(fewest, ddl::test::allocation_count() - before);
              context.communicator().barrier();
            }
            // The count is that of all ranks; one rank has one bucket, and one for each embedding.
            const auto buckets = static_cast<long>(run.step.gradients().buckets());
            EXPECT_LE(fewest, ranks * static_cast<long>(epoch) * buckets * 20)
                << ranks << " ranks, " << epoch << " steps, attention '" << name_of(attention)
                << "', optimizer " << name_of(optimizer);
          },
          quiet(hosts));
    }
  }
}

// A resumed run would use other dropout masks or another learning rate than a run that never stopped.
TEST(TrainingStep, SeekGoesOnWithTheSameBatch) {
  ddl::run_in_process(
      1,
      [](ddl::Context& context) {
        Options o = test::small_training_options();
        o.learning_rate = 0;  // so that the model does not change
        RankRun first(context, o);
        for (int i = 0; i < 5; ++i) first.step.run();
        EXPECT_EQ(first.step.done(), 5u);
        RankRun second(context, o);
        second.step.seek(first.step.done(), first.step.sampler_state());
        const StepReport expected = first.step.run().report;
        const StepReport found = second.step.run().report;
        EXPECT_EQ(found.step, 6);
        EXPECT_EQ(found.step, expected.step);
        EXPECT_EQ(found.loss_sum, expected.loss_sum);
        EXPECT_EQ(found.words, expected.words);
        EXPECT_EQ(found.gradient_norm, expected.gradient_norm);
      },
      quiet());
}

// Users who resume on as many machines as are free would use some sentences twice, and others never.
TEST(TrainingStep, SeekGoesOnWithAnotherGlobalBatch) {
  std::string state;
  double words = 0;
  double all_words = 0;
  ddl::run_in_process(
      2,
      [&](ddl::Context& context) {
        const Options o = test::small_training_options();
        RankRun run(context, o);
        double own = 0;
        for (int i = 0; i < 4; ++i) own += run.step.run().report.words;
        if (!context.is_root()) return;
        words = own;
        state = run.step.sampler_state();
      },
      quiet());
  ddl::run_in_process(
      3,
      [&](ddl::Context& context) {
        Options o = test::small_training_options();
        o.batch_size = 3;
        RankRun run(context, o);
        run.step.seek(4, state);
        double own = words;
        const auto all = static_cast<double>(run.dataset.tokens() + run.dataset.size());  // including </s>
        while (own < all) own += run.step.run().report.words;
        EXPECT_EQ(own, all);
        if (context.is_root()) all_words = all;
      },
      quiet());
  EXPECT_GT(words, 0);
  EXPECT_GT(all_words, words);
}

// With four times the workers, the decay would come after four times as many samples.
TEST(TrainingStep, ScheduleMayCountSamples) {
  const auto rates = [](int ranks, std::int64_t steps, ddl::ScheduleUnit unit) {
    std::vector<double> found;
    ddl::run_in_process(
        ranks,
        [&](ddl::Context& context) {
          Options o = test::small_training_options();
          o.decay_scheme = DecayScheme::cosine;
          o.warmup_steps = 4;
          o.num_train_steps = steps;
          o.lr_schedule_unit = unit;
          RankRun run(context, o);
          std::vector<double> own;
          for (std::int64_t i = 0; i < steps; ++i) own.push_back(run.step.run().report.learning_rate);
          if (context.is_root()) found = own;
        },
        quiet());
    return found;
  };
  const std::vector<double> one = rates(1, 12, ddl::ScheduleUnit::updates);
  EXPECT_EQ(rates(1, 12, ddl::ScheduleUnit::samples), one);
  const std::vector<double> two = rates(2, 6, ddl::ScheduleUnit::samples);
  for (std::size_t i = 0; i < two.size(); ++i) EXPECT_EQ(two[i], one[2 * i]) << "update " << i;
}

/// Losses and gradient norms of some steps, on rank 0.
std::vector<double> course_of(const Options& options, const std::vector<std::string>& hosts) {
  std::vector<double> course;
  ddl::run_in_process(
      static_cast<int>(hosts.size()),
      [&](ddl::Context& context) {
        RankRun run(context, options);
        for (int i = 0; i < 8; ++i) {
          const StepReport report = run.step.run().report;
          run.step.check_drift();
          if (!context.is_root()) continue;
          course.push_back(report.loss_sum / report.target_tokens);
          course.push_back(report.gradient_norm);
        }
      },
      quiet(hosts));
  return course;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "value " << i;
  }
}

// Options that save memory or bytes would train another model.
TEST(TrainingStep, HowGradientsTravelDoesNotChangeTheTraining) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::lamb, OptimizerKind::novograd}) {
    for (const bool share_vocab : {false, true}) {
      Options o = test::small_training_options();
      o.optimizer = optimizer;
      o.learning_rate = o.optimizer == OptimizerKind::sgd ? 0.2 : 0.002;
      o.share_vocab = share_vocab;
      o.sparse_embeddings = false;
      const std::vector<std::string> hosts = {"a", "b", "a"};
      const std::vector<double> expected = course_of(o, hosts);
      Options by_rows = o;
      by_rows.sparse_embeddings = true;
      expect_near(course_of(by_rows, hosts), expected, 1e-5);
      Options in_parts = by_rows;
      in_parts.micro_batch_size = 3;
      expect_near(course_of(in_parts, hosts), expected, 1e-5);
      Options sharded = by_rows;
      sharded.sharded_update = true;
      expect_near(course_of(sharded, hosts), expected, 1e-5);
      Options narrow = sharded;
      narrow.gradient_wire = ddl::DataType::bf16;
      expect_near(course_of(narrow, hosts), expected, 0.02);
    }
  }
}

// One rank would stop and the others would wait.
TEST(TrainingStep, WhenOneRankWantsToStopAllDo) {
  ddl::run_in_process(
      3,
      [](ddl::Context& context) {
        const Options o = test::small_training_options();
        RankRun run(context, o);
        EXPECT_FALSE(run.step.run(false).stop);
        EXPECT_TRUE(run.step.run(context.rank() == 1).stop);
        EXPECT_FALSE(run.step.run().stop);
      },
      quiet());
}

// Ranks would train different models for days without notice.
TEST(TrainingStep, DriftIsFoundAndNamed) {
  ddl::run_in_process(
      3,
      [](ddl::Context& context) {
        const Options o = test::small_training_options();
        RankRun run(context, o);
        for (int i = 0; i < 3; ++i) run.step.run();
        EXPECT_NO_THROW(run.step.check_drift());
        if (context.rank() == 1) {
          const Tensor value = run.model.parameters().value(2);
          value.as<float>()[0] = -value.as<float>()[0];
        }
        const std::string text =
            ddl::test::message_of(ddl::ErrorCode::mismatch, [&] { run.step.check_drift(); });
        const std::string& name = run.model.parameters().layout().parameters[2].name;
        EXPECT_NE(text.find("parameter 2 is '" + name + "'"), std::string::npos) << text;
        EXPECT_NE(text.find("there: 1)"), std::string::npos) << text;
      },
      quiet());
}

// Parameters would become infinite, or ranks would differ in which steps they take.
TEST(TrainingStep, StepsThatOverflowAreLeftOutOnAllRanks) {
  ddl::run_in_process(
      2,
      [](ddl::Context& context) {
        Options o = test::small_training_options();
        o.dtype = Dtype::mixed;
        o.loss_scaling = LossScaling::backoff;
        o.loss_scale = 0x1p126;
        o.output_bias = true;  // whose gradients are sums of many words'
        o.ema_decay = 0.4;     // above the first update's 2 / 11
        RankRun run(context, o);
        run.average.restart();
        const auto parameters = [&] {
          const Tensor values = run.model.parameters().values();
          return std::vector<float>(values.as<float>(), values.as<float>() + values.size());
        };
        const auto average = [&] {
          std::vector<float> values;
          for (const NamedView& view : run.average.values())
            values.insert(values.end(), view.tensor.as<float>(),
                          view.tensor.as<float>() + view.tensor.size());
          return values;
        };
        const std::vector<float> before = parameters(), average_before = average();
        int left_out = 0;
        for (TrainingStep::Result result; left_out < 30; ++left_out) {
          const double scale = run.step.loss_scale().value;
          result = run.step.run();
          EXPECT_EQ(result.diverged, "");
          if (result.left_out.empty()) break;
          EXPECT_EQ(run.step.loss_scale().value, scale / 2);
          EXPECT_EQ(run.step.done(), 0U);
          EXPECT_EQ(parameters(), before);
          EXPECT_EQ(average(), average_before);
        }
        EXPECT_GT(left_out, 0);
        EXPECT_EQ(run.step.done(), 1U);
        EXPECT_NE(parameters(), before);
        const std::vector<float> average_now = average();
        std::size_t i = 0;
        for (const NamedView& view : values_of(run.model.parameters())) {
          for (std::int64_t k = 0; k < view.tensor.size(); ++k, ++i) {
            const double expected =
                average_before[i] + 9.0 / 11 * (view.tensor.as<float>()[k] - average_before[i]);
            ASSERT_NEAR(average_now[i], expected, 1e-6) << view.name;
          }
        }
        for (const float x : parameters()) EXPECT_TRUE(std::isfinite(x));
        double counts[2] = {static_cast<double>(left_out), static_cast<double>(-left_out)};
        context.communicator().all_reduce(std::span(counts), ddl::ReduceOp::max);
        EXPECT_EQ(counts[0], -counts[1]);
      },
      quiet());
}

// A run whose gradients never become finite would go on for ever.
TEST(TrainingStep, OverflowsWithoutABreakAreDivergence) {
  ddl::run_in_process(
      1,
      [](ddl::Context& context) {
        Options o = test::small_training_options();
        o.dtype = Dtype::mixed;
        o.loss_scaling = LossScaling::constant;
        o.loss_scale = 0x1p127;
        o.output_bias = true;
        RankRun run(context, o);
        for (int i = 0; i < 50; ++i) EXPECT_NE(run.step.run().left_out, "");
        const TrainingStep::Result result = run.step.run();
        EXPECT_EQ(result.left_out, "");
        EXPECT_NE(result.diverged.find("diverged"), std::string::npos);
      },
      quiet());
}

// Reports would count one rank's words only, or ranks would clip differently.
TEST(TrainingStep, ReportIsTheSameOnAllRanks) {
  std::mutex mutex;
  std::vector<StepReport> reports;
  ddl::run_in_process(
      4,
      [&](ddl::Context& context) {
        const Options o = test::small_training_options();
        RankRun run(context, o);
        run.step.run();
        const StepReport report = run.step.run().report;
        const std::lock_guard lock(mutex);
        reports.push_back(report);
      },
      quiet());
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_GT(reports[0].words, reports[0].target_tokens);
  for (const StepReport& report : reports) {
    EXPECT_EQ(report.step, 2);
    EXPECT_EQ(report.loss_sum, reports[0].loss_sum);
    EXPECT_EQ(report.words, reports[0].words);
    EXPECT_EQ(report.target_tokens, reports[0].target_tokens);
    EXPECT_EQ(report.gradient_norm, reports[0].gradient_norm);
  }
}

}  // namespace
}  // namespace nmt
