// The memory of training, and the batches that it has room for.

#include "nmt_example/training/batch_fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "nmt_example/data/encoding.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/training/host_memory.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/setup.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

constexpr std::size_t megabyte = 1'000'000;

const ParallelText& text() {
  static const ParallelText result = number_corpus(CorpusSplit::train, 2000, 3);
  return result;
}
const Vocabulary& vocabulary() {
  static const Vocabulary result = Vocabulary::train(text().target, 200);
  return result;
}
const Dataset& dataset() {
  static const Dataset result = encode(text(), vocabulary(), vocabulary(), 50, 50);
  return result;
}

Options small_model() {
  Options options;
  options.num_units = 64;
  options.attention = AttentionKind::scaled_luong;
  options.threads = 1;
  return options;
}

ModelShape shape_of(const Options& options) {
  return model_shape(options, vocabulary().size(), vocabulary().size());
}

std::size_t needed(const Options& options, int ranks) {
  const auto backend = make_cpu_backend(1);
  Model model(*backend, shape_of(options), BatchLimits());
  return training_memory(options, dataset(), *backend, model, ranks).needed();
}

// A batch would be chosen by other numbers than those that are printed, or than training allocates.
TEST(TrainingMemory, IsWhatTrainingAllocates) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::lamb}) {
    for (const bool by_words : {false, true}) {
      Options options = small_model();
      options.optimizer = kind;
      options.batch_size = 24;
      options.batch_words = by_words ? 300 : 0;
      const auto backend = make_cpu_backend(1);
      const std::vector<BatchLimits> limits = batch_limits(options, dataset());
      Model model(*backend, shape_of(options), limits.front());
      for (const BatchLimits& other : limits) model.also_allow(other);
      Optimizer optimizer(*backend, model.parameters(), options);
      const TrainingMemory memory = training_memory(options, dataset(), *backend, model, 1);
      EXPECT_EQ(memory.activations, model.workspace_bytes());
      const auto values = static_cast<std::size_t>(model.parameters().layout().extent);
      EXPECT_EQ(memory.parameters, values * sizeof(float));
      std::size_t moments = 0;
      for (const Optimizer::State& state : optimizer.state())
        moments += static_cast<std::size_t>(state.value.size()) * sizeof(float);
      EXPECT_NEAR(static_cast<double>(memory.optimizer), static_cast<double>(moments),
                  0.01 * static_cast<double>(memory.parameters));
    }
  }
}

// The largest batch would not be the largest, would not fit, or would differ between ranks.
TEST(BatchFit, IsTheLargestWithRoom) {
  for (const bool by_words : {false, true}) {
    for (const int ranks : {1, 3}) {
      Options options = small_model();
      options.workspace = 120;
      options.batch_words = by_words ? 1 : 0;
      ddl::run_in_process(ranks, [&](ddl::Context& context) {
        Options found = options;
        const auto backend = make_cpu_backend(1);
        const std::string said = fit_batch(context, found, dataset(), *backend, shape_of(options));
        int Options::*const batch = by_words ? &Options::batch_words : &Options::batch_size;
        ddl::test::expect_parts(said, {"--batch_", std::to_string(found.*batch), "120 MB", "--workspace"});
        EXPECT_LE(needed(found, ranks), 120 * megabyte);
        EXPECT_GT(found.*batch, 16);
        check_batch(context, found, dataset(), *backend, shape_of(options));
        found.*batch += by_words ? 40 : 8;
        EXPECT_GT(needed(found, ranks), 120 * megabyte);
        const ddl::Error error =
            ddl::test::error_of([&] { check_batch(context, found, dataset(), *backend, shape_of(options)); });
        EXPECT_EQ(error.code(), ddl::ErrorCode::invalid_argument);
        ddl::test::expect_parts(error.what(), {"120 (--workspace=120)", "fits", "--micro_batch_size"});
      });
    }
  }
}

// A model that is too large would be trained until the system ends it; or all memory would be asked for by a
// small corpus.
TEST(BatchFit, MayBeNoneOrTheWholeText) {
  ddl::run_in_process(2, [&](ddl::Context& context) {
    Options options = small_model();
    options.workspace = 60;  // less than the reserve
    const auto backend = make_cpu_backend(1);
    const ddl::Error error =
        ddl::test::error_of([&] { fit_batch(context, options, dataset(), *backend, shape_of(options)); });
    EXPECT_EQ(error.code(), ddl::ErrorCode::invalid_argument);
    ddl::test::expect_parts(error.what(), {"no batch fits", "of parameters", "60 (--workspace=60)"});
    options.workspace = 100'000;
    fit_batch(context, options, dataset(), *backend, shape_of(options));
    EXPECT_EQ(options.batch_size, 1000);
    options.workspace = 0;
    options.num_units = 16384;
    options.num_layers = 128;
    options.batch_size = 1;
    EXPECT_THROW(check_batch(context, options, dataset(), *backend, shape_of(options)), ddl::Error);
  });
}

// In a container, the batch would be chosen by the memory of the whole machine.
TEST(HostMemory, IsThatOfTheControlGroup) {
  const ddl::test::TemporaryDirectory directory;
  const auto root = directory.path();
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories((root / name).parent_path());
    directory.write(name, bytes);
  };
  EXPECT_THROW(host_memory(root), ddl::Error);
  write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  600 kB\nSwapTotal:  50 kB\n");
  EXPECT_EQ(host_memory(root).total, 1050U * 1024);
  EXPECT_EQ(host_memory(root).available, 600U * 1024);
  write("proc/self/cgroup", "1:memory:/other\n0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.max", "500000\n");
  write("sys/fs/cgroup/job/memory.current", "300000\n");
  write("sys/fs/cgroup/job/memory.stat", "file 9\ninactive_file 100000\n");
  EXPECT_EQ(host_memory(root).total, 500000U);
  EXPECT_EQ(host_memory(root).available, 300000U);
  EXPECT_GT(host_memory().available, megabyte);
}

}  // namespace
}  // namespace nmt
