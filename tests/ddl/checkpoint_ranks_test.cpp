// Checkpoints that one number of ranks saves and another reads.

#include <mutex>

#include "checkpoint_support.hpp"

namespace ddl::test {
namespace {

constexpr std::int64_t large = 1000;

/// A job's state: a model that all ranks hold, an optimiser's state cut into slices, and a residual per rank.
struct Job {
  explicit Job(const Context& context, float salt = 0) : rank(context.rank()), ranks(context.size()) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = salt + static_cast<float>(i);
    for (std::size_t i = 0; i < moments.size(); ++i) moments[i] = salt + 0.5 + static_cast<double>(i);
    for (std::size_t i = 0; i < small.size(); ++i) small[i] = salt - static_cast<float>(i);
    residual.assign(static_cast<std::size_t>(rank % 3 + 1), salt + static_cast<float>(rank));
  }

  /// Two buckets, each cut into one part per rank; the parts overlap by an element.
  [[nodiscard]] std::vector<TensorSlice> slices() {
    std::vector<TensorSlice> result;
    const auto cut = [&](const std::string& name, auto& values, DataType type,
                         std::vector<std::int64_t> shape, std::size_t begin, std::size_t end) {
      const std::size_t size = end - begin;
      const auto n = static_cast<std::size_t>(ranks);
      const auto r = static_cast<std::size_t>(rank);
      const std::size_t from = begin + size * r / n;
      const std::size_t to = std::min(end, begin + size * (r + 1) / n + 1);
      if (from == to) return;
      result.push_back({name, type, shape, from,
                        bytes_of(values).subspan(from * size_of(type), (to - from) * size_of(type))});
    };
    cut("m/large", moments, DataType::f64, {large / 10, 10}, 0, 317);
    cut("m/large", moments, DataType::f64, {large / 10, 10}, 317, static_cast<std::size_t>(large));
    cut("m/small", small, DataType::f32, {3}, 0, 3);
    return result;
  }

  CheckpointContents contents() {
    CheckpointContents result;
    result.groups["model"] = {.whole = {{"weights", DataType::f32, {10, 30}, bytes_of(weights)},
                                        {"empty", DataType::f32, {0, 4}, {}}}};
    result.groups["optimizer"] = {
        .slices = slices(),
        .per_rank = {
            {"residual", DataType::f32, {static_cast<std::int64_t>(residual.size())}, bytes_of(residual)}}};
    result.state = "{}";
    return result;
  }

  int rank, ranks;
  std::vector<float> weights = std::vector<float>(300);
  std::vector<double> moments = std::vector<double>(static_cast<std::size_t>(large));
  std::vector<float> small = std::vector<float>(3);
  std::vector<float> residual;
};

/// Reads all tensors, in three ways.
void expect_restored(Context& context, const SavedCheckpoint& saved, float salt) {
  const Job expected(context, salt);
  Job found(context, -1000);
  saved.restore("model", found.contents().groups["model"]);
  EXPECT_EQ(found.weights, expected.weights);

  saved.restore("optimizer", {.whole = {{"m/large", DataType::f64, {large / 10, 10}, bytes_of(found.moments)},
                                        {"m/small", DataType::f32, {3}, bytes_of(found.small)}}});
  EXPECT_EQ(found.moments, expected.moments);
  EXPECT_EQ(found.small, expected.small);

  Job sliced(context, -1000);
  const auto wanted = sliced.slices();
  saved.restore("optimizer", {.slices = wanted});
  for (const TensorSlice& slice : wanted) {
    for (std::size_t i = 0; i < slice.bytes.size() / size_of(slice.type); ++i) {
      if (slice.type == DataType::f64) {
        ASSERT_EQ(sliced.moments[slice.first + i], expected.moments[slice.first + i]);
      } else {
        ASSERT_EQ(sliced.small[slice.first + i], expected.small[slice.first + i]);
      }
    }
  }
}

// A run could not resume with another number of workers, or would read the optimiser's state to wrong places.
TEST_F(CheckpointTest, AnyNumberOfRanksReadsWhatAnyNumberSaved) {
  for (const bool sharded : {false, true}) {
    for (const int savers : {1, 2, 3, 4, 16}) {
      const fs::path directory = root() / (std::to_string(savers) + (sharded ? "s" : "w"));
      on_ranks(savers, [&](Context& context) {
        Checkpoint checkpoint(context, directory, {.sharded = sharded, .background = savers == 3});
        for (const std::uint64_t step : {1, 2}) {
          Job job(context, static_cast<float>(step));
          checkpoint.save(step, job.contents());
        }
        checkpoint.wait();
        Job job(context);
        const auto saved = checkpoint.newest();
        saved->restore("optimizer", job.contents().groups["optimizer"]);
        EXPECT_EQ(job.residual, Job(context, 2).residual) << "each rank's own";
      });
      for (const int readers : {1, 2, 3, 4, 16}) {
        SCOPED_TRACE(std::to_string(savers) + (sharded ? " ranks, shards, read by " : " ranks, read by ") +
                     std::to_string(readers));
        on_ranks(readers, [&](Context& context) {
          const auto saved = Checkpoint(context, directory).newest();
          ASSERT_TRUE(saved.has_value());
          EXPECT_EQ(saved->step(), 2u);
          EXPECT_EQ(saved->ranks(), savers);
          expect_restored(context, *saved, 2);
        });
      }
    }
  }
}

// Tensors would lose everything beyond the first piece of 16 MiB that travels between ranks.
TEST_F(CheckpointTest, TensorsLargerThanAPieceComeBack) {
  constexpr std::size_t size = 9'000'001;  // 36 MB
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(size)};
  const auto value = [](std::size_t i) { return static_cast<float>(i % 1'000'003); };
  on_ranks(3, [&](Context& context) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = value(i);
    const std::size_t begin = size * static_cast<std::size_t>(context.rank()) / 3;
    const std::size_t end = size * static_cast<std::size_t>(context.rank() + 1) / 3;
    std::vector<float> own(size / 2, static_cast<float>(context.rank()));
    CheckpointGroup group;
    group.slices = {
        {"s", DataType::f32, shape, begin, bytes_of(values).subspan(begin * 4, (end - begin) * 4)}};
    group.per_rank = {{"own", DataType::f32, {static_cast<std::int64_t>(size / 2)}, bytes_of(own)}};
    Checkpoint checkpoint(context, root());
    checkpoint.save(1, {.groups = {{"g", group}}, .state = "{}"});

    std::vector<float> found(size, -1);
    std::ranges::fill(own, -1.0f);
    checkpoint.newest()->restore(
        "g", {.whole = {{"s", DataType::f32, shape, bytes_of(found)}}, .per_rank = group.per_rank});
    EXPECT_TRUE(found == values);
    EXPECT_EQ(std::ranges::count(own, static_cast<float>(context.rank())),
              static_cast<std::ptrdiff_t>(size / 2));
  });
}

// A save would take n times the disk space and time, or use names that other programs do not find.
TEST_F(CheckpointTest, ShardsHoldEachByteOnce) {
  std::vector<float> big(100000);
  std::vector<float> half(40000);
  on_ranks(3, [&](Context& context) {
    CheckpointGroup group;
    group.whole = {{"a", DataType::f32, {40000}, bytes_of(half)},
                   {"b", DataType::f32, {40000}, bytes_of(half)},
                   {"c", DataType::f32, {100000}, bytes_of(big)}};
    if (context.rank() == 1) group.slices = {{"d", DataType::f32, {40000}, 0, bytes_of(half)}};
    Checkpoint(context, root(), {.sharded = true}).save(1, {.groups = {{"model", group}}, .state = "{}"});
  });
  const fs::path path = root() / step_name(1);
  EXPECT_EQ(names_in(path), (std::vector<std::string>{"manifest.json", "model-00000-of-00003.safetensors",
                                                      "model-00001-of-00003.safetensors",
                                                      "model-00002-of-00003.safetensors", "state.json"}));
  std::uintmax_t total = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const auto bytes = fs::file_size(path / ("model-0000" + std::to_string(rank) + "-of-00003.safetensors"));
    EXPECT_LT(bytes, 401000u) << "one rank writes more than the largest tensor";
    total += bytes;
  }
  EXPECT_LT(total, 881000u);
}

// Part of the optimiser's state would become zeros.
TEST_F(CheckpointTest, GapsBetweenSlicesAreNamed) {
  for (const bool sharded : {false, true}) {
    on_ranks(3, [&](Context& context) {
      Checkpoint checkpoint(context, root(), {.sharded = sharded});
      const auto save = [&](std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges) {
        std::vector<float> values(100);
        const auto [begin, end] = ranges[static_cast<std::size_t>(context.rank())];
        CheckpointGroup group;
        group.slices = {
            {"moments", DataType::f32, {10, 10}, begin, bytes_of(values).first((end - begin) * 4)}};
        checkpoint.save(1, {.groups = {{"optimizer", group}}, .state = "{}"});
      };
      const auto expect_gap = [&](const std::string& range, const auto& ranges) {
        expect_agreed(ErrorCode::invalid_argument, {"moments", "optimizer", "gap", range},
                      [&] { save(ranges); });
      };
      using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
      expect_gap("elements 33 to 39", Ranges{{0, 33}, {40, 70}, {70, 100}});
      expect_gap("elements 0 to 1", Ranges{{2, 33}, {30, 70}, {70, 100}});
      expect_gap("elements 99 to 99", Ranges{{70, 99}, {30, 70}, {0, 30}});
      expect_gap("elements 80 to 99", Ranges{{0, 80}, {10, 20}, {30, 40}});
      save({{60, 100}, {0, 61}, {10, 20}});
      EXPECT_EQ(checkpoint.newest()->step(), 1u);
    });
  }
}

// A checkpoint would combine the contents of different programs, or the job would hang.
TEST_F(CheckpointTest, RanksWithOtherContentsAreAMismatch) {
  on_ranks(3, [&](Context& context) {
    Checkpoint checkpoint(context, root());
    const auto attempt = [&](const std::vector<std::string>& parts, const auto& change) {
      Job job(context, 1);
      auto contents = job.contents();
      std::uint64_t step = 1;
      if (context.rank() == 1) change(contents, step);
      expect_agreed(ErrorCode::mismatch, parts, [&] { checkpoint.save(step, contents); });
    };
    attempt({"weights", "f32 [10, 30]", "f32 [30, 10]", "rank 1"}, [](auto& c, auto&) {
      c.groups["model"].whole[0].shape = {30, 10};
    });
    attempt({"weights", "other", "rank 1"},
            [](auto& c, auto&) { c.groups["model"].whole[0].name = "other"; });
    attempt({"empty", "rank 1"}, [](auto& c, auto&) { c.groups["model"].whole.pop_back(); });
    attempt({"optimizer", "rank 1"}, [](auto& c, auto&) { c.groups.erase("optimizer"); });
    attempt({"m/large", "rank 0", "rank 1", "[100, 10]", "[10, 100]"}, [](auto& c, auto&) {
      for (TensorSlice& slice : c.groups["optimizer"].slices) {
        if (slice.name == "m/large") slice.shape = {10, 100};
      }
    });
    attempt({"step", "2", "1"}, [](auto&, auto& step) { step = 2; });
    attempt({"residual"}, [](auto& c, auto&) {
      auto& slice = c.groups["optimizer"].slices.emplace_back(c.groups["optimizer"].slices[0]);
      slice.name = "residual";
      slice.first = 0;
      slice.shape = {static_cast<std::int64_t>(slice.bytes.size() / 8)};
    });
    Job job(context, 3);
    checkpoint.save(1, job.contents());  // it remains usable
    expect_restored(context, checkpoint.newest().value(), 3);
  });
  expect_agreed(ErrorCode::mismatch, {"option", "sharded"}, [&] {
    on_ranks(2, [&](Context& context) { Checkpoint(context, root(), {.sharded = context.rank() == 1}); });
  });
}

// A rank would silently get another rank's weights, or lose the rounding errors of error feedback.
TEST_F(CheckpointTest, ReadersThatAskForSomethingElseAreToldSo) {
  for (const bool sharded : {false, true}) {
    on_ranks(2, [&](Context& context) {
      Job job(context, 1);
      Checkpoint(context, root(), {.sharded = sharded}).save(1, job.contents());
    });
    on_ranks(3, [&](Context& context) {
      const auto saved = Checkpoint(context, root()).newest().value();
      Job job(context, 9);
      const auto attempt = [&](const std::vector<std::string>& parts, const std::string& group,
                               const CheckpointGroup& into) {
        expect_agreed(ErrorCode::mismatch, parts, [&] { saved.restore(group, into); });
        EXPECT_EQ(job.weights, Job(context, 9).weights);
        EXPECT_EQ(job.moments, Job(context, 9).moments);
      };
      auto contents = job.contents();
      attempt({"2 ranks", "3", "slices"}, "optimizer", contents.groups["optimizer"]);
      attempt({"m/small", "expected nothing"}, "optimizer",
              {.whole = {{"m/large", DataType::f64, {large / 10, 10}, bytes_of(job.moments)}}});
      attempt({"m/large", "found f64 [100, 10]", "expected f64 [1000]"}, "optimizer",
              {.whole = {{"m/large", DataType::f64, {large}, bytes_of(job.moments)}}});
      attempt({"no group 'none'"}, "none", {});
      // Only one rank makes a different request.
      auto& weights = contents.groups["model"].whole[0];
      if (context.rank() == 2) weights.name = "renamed";
      attempt({"rank 2", "renamed", "found nothing"}, "model", contents.groups["model"]);
    });
  }
}

// A rank would write its part to its own disk, where it is lost. In-process ranks share a disk, so here only
// rank 0 names the right directory.
TEST_F(CheckpointTest, RankZerosDirectoryCounts) {
  on_ranks(3, [&](Context& context) {
    Checkpoint checkpoint(context, root() / std::to_string(context.rank()), {.sharded = true});
    EXPECT_EQ(checkpoint.directory(), root() / "0");
    Job job(context, 1);
    EXPECT_EQ(checkpoint.save(4, job.contents()), root() / "0" / step_name(4));
  });
  EXPECT_EQ(names_in(root()), std::vector<std::string>{"0"});
}

}  // namespace
}  // namespace ddl::test
