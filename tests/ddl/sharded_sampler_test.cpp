#include "ddl/sharded_sampler.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "support/allocation_count.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using Samples = std::vector<std::size_t>;
using Lengths = std::vector<std::uint32_t>;

/// Runs all ranks' samplers in lock step and combines their batches to global batches.
class Job {
 public:
  Job(int ranks, std::size_t dataset, const ShardedSamplerOptions& options) {
    for (int rank = 0; rank < ranks; ++rank) samplers_.emplace_back(rank, ranks, dataset, options);
  }
  std::vector<ShardedSampler>& samplers() { return samplers_; }
  std::size_t steps() const { return samplers_.front().steps_per_epoch(); }
  std::string state() const {
    for (const ShardedSampler& sampler : samplers_) EXPECT_EQ(sampler.state(), samplers_.front().state());
    return samplers_.front().state();
  }
  void restore(const std::string& state) {
    for (ShardedSampler& sampler : samplers_) sampler.restore(state);
  }
  /// The epoch and step of the newest batch.
  std::uint64_t epoch_number() const { return epoch_; }
  std::uint64_t step_number() const { return step_; }

  Samples next() {
    std::vector<ShardedBatch> parts;
    std::size_t largest = 0;
    for (auto& sampler : samplers_) {
      parts.push_back(sampler.next());
      EXPECT_EQ(parts.back().step, parts.front().step);
      EXPECT_EQ(parts.back().epoch, parts.front().epoch);
      EXPECT_EQ(parts.back().global_samples, parts.front().global_samples);
      largest = std::max(largest, parts.back().samples.size());
    }
    Samples global;
    for (std::size_t i = 0; i < largest; ++i) {
      for (const ShardedBatch& part : parts) {
        if (i < part.samples.size()) global.push_back(part.samples[i]);
      }
      std::reverse(parts.begin(), parts.end());  // dealt to and fro
    }
    EXPECT_EQ(global.size(), parts.front().global_samples);
    epoch_ = parts.front().epoch;
    step_ = parts.front().step;
    return global;
  }

  std::vector<Samples> epoch() {
    std::vector<Samples> batches;
    for (std::size_t i = 0; i < steps(); ++i) batches.push_back(next());
    return batches;
  }

 private:
  std::vector<ShardedSampler> samplers_;
  std::uint64_t epoch_ = 0;
  std::uint64_t step_ = 0;
};

Samples sorted(const std::vector<Samples>& batches) {
  Samples all;
  for (const Samples& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  return all;
}

Samples everything(std::size_t size) {
  Samples all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = i;
  return all;
}

std::string failure(int rank, int ranks, std::size_t size, const ShardedSamplerOptions& options) {
  try {
    const ShardedSampler sampler(rank, ranks, size, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << size << " samples, rank " << rank << " of " << ranks;
  return {};
}

/// Three buckets of different sizes, with matching lengths.
ShardedSamplerOptions bucketed(std::size_t size, std::size_t batch) {
  ShardedSamplerOptions options;
  options.batch_size = batch;
  for (std::size_t i = 0; i < size; ++i) {
    const auto length = static_cast<std::uint32_t>((i * 7919 + 13) % 30);
    options.lengths.push_back(length);
    options.buckets.push_back(length < 4 ? 1000000 : length / 10);
  }
  return options;
}

/// The same with batches by length.
ShardedSamplerOptions by_length(std::size_t size, std::size_t length) {
  ShardedSamplerOptions options = bucketed(size, 1);
  options.batch_length = length;
  return options;
}

// Some samples would be used never, or twice in an epoch.
TEST(ShardedSampler, EveryEpochTakesEverySampleExactlyOnce) {
  Job lengths(3, 1000, by_length(1000, 90));
  EXPECT_EQ(sorted(lengths.epoch()), everything(1000));
  for (const int ranks : {1, 2, 3, 4, 16}) {
    for (const std::size_t size : {std::size_t{16}, std::size_t{17}, std::size_t{101}, std::size_t{1000}}) {
      for (const std::size_t batch : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
        Job plain(ranks, size, {.batch_size = batch});
        Job buckets(ranks, size, bucketed(size, batch));
        for (int epoch = 0; epoch < 2; ++epoch) {
          EXPECT_EQ(sorted(plain.epoch()), everything(size)) << ranks << " ranks, batch " << batch;
          EXPECT_EQ(sorted(buckets.epoch()), everything(size)) << ranks << " ranks, batch " << batch;
        }
      }
    }
  }
}

// Ranks would wait for each other forever at the end of an epoch.
TEST(ShardedSampler, RanksTakeTheSameNumberOfSteps) {
  Job job(4, 103, bucketed(103, 5));
  for (auto& sampler : job.samplers()) EXPECT_EQ(sampler.steps_per_epoch(), job.steps());
  for (std::size_t i = 0; i < job.steps(); ++i) {
    for (auto& sampler : job.samplers()) EXPECT_EQ(sampler.next().epoch, 0u);
  }
  for (auto& sampler : job.samplers()) EXPECT_EQ(sampler.next().epoch, 1u);
}

// 4 ranks x 16 samples would not train like 1 rank x 64.
TEST(ShardedSampler, GlobalBatchesDoNotDependOnTheNumberOfRanks) {
  const std::size_t size = 997;
  Job one(1, size, bucketed(size, 24));
  Job two(2, size, bucketed(size, 12));
  Job four(4, size, bucketed(size, 6));
  ASSERT_EQ(one.steps(), four.steps());
  for (std::size_t i = 0; i < 3 * one.steps(); ++i) {
    const Samples expected = one.next();
    EXPECT_EQ(two.next(), expected) << "step " << i;
    EXPECT_EQ(four.next(), expected) << "step " << i;
  }
}

// A batch of long sentences would need more memory than one of short ones, or its share of words would
// depend on the number of ranks.
TEST(ShardedSampler, BatchesByLengthHoldAsManySamplesAsFit) {
  const std::size_t size = 997;
  const ShardedSamplerOptions options = by_length(size, 120);
  Job one(1, size, by_length(size, 240)), two(2, size, options);
  ASSERT_EQ(one.steps(), two.steps());
  std::set<std::size_t> sizes;
  for (std::size_t i = 0; i < one.steps(); ++i) {
    const Samples batch = one.next();
    EXPECT_EQ(two.next(), batch) << "step " << i;
    // The longest samples of the buckets have the lengths 3, 9, 19 and 29.
    const std::uint32_t length = options.lengths[batch.front()];
    const std::size_t most = 240 / (length < 4 ? 3 : length < 10 ? 9 : length < 20 ? 19 : 29);
    EXPECT_LE(batch.size(), most);
    if (batch.size() < most) sizes.insert(batch.size());
  }
  EXPECT_LE(sizes.size(), 4U) << "more than one batch of a bucket is not full";
  Job tiny(1, size, by_length(size, 1));
  EXPECT_EQ(tiny.steps(), size) << "a batch has at least one sample";
}

// A run that goes on with batches of another kind would repeat or skip samples.
TEST(ShardedSampler, RestoreContinuesWithBatchesOfAnotherKind) {
  const std::size_t size = 211;
  for (const bool to_lengths : {true, false}) {
    const ShardedSamplerOptions samples = bucketed(size, 5), lengths = by_length(size, 60);
    Job before(2, size, to_lengths ? samples : lengths), after(3, size, to_lengths ? lengths : samples);
    Samples taken;
    for (int i = 0; i < 4; ++i) {
      const Samples batch = before.next();
      taken.insert(taken.end(), batch.begin(), batch.end());
    }
    after.restore(before.state());
    while (after.epoch_number() == 0) {
      const Samples batch = after.next();
      if (after.epoch_number() == 0) taken.insert(taken.end(), batch.begin(), batch.end());
    }
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(taken, everything(size));
  }
}

// A run resumed on another number of ranks would repeat or skip samples.
TEST(ShardedSampler, RestoreContinuesOnAnotherNumberOfRanks) {
  const std::size_t size = 211;
  Job four(4, size, bucketed(size, 3));
  for (std::size_t i = 0; i < 2 * four.steps() + 5; ++i) four.next();

  Job two(2, size, bucketed(size, 6));
  two.next();
  two.restore(four.state());
  EXPECT_EQ(two.state(), four.state());
  for (std::size_t i = 0; i < 2 * four.steps(); ++i) {
    EXPECT_EQ(two.next(), four.next()) << "step " << i;
    EXPECT_EQ(two.step_number(), four.step_number());
    EXPECT_EQ(two.epoch_number(), four.epoch_number());
  }

  two.restore(Job(1, size, bucketed(size, 12)).state());
  EXPECT_EQ(two.next(), Job(1, size, bucketed(size, 12)).next());
}

struct Stretch {
  int ranks;
  std::size_t batch;
  std::size_t steps;
};

/// Runs the stretches, each from the state of the one before, then the rest of the epoch and another epoch.
void expect_whole_epochs(std::size_t size, const std::function<ShardedSamplerOptions(std::size_t)>& options,
                         const std::vector<Stretch>& stretches) {
  std::vector<Samples> batches;
  std::string state;
  for (const auto& [ranks, batch, steps] : stretches) {
    Job job(ranks, size, options(batch));
    if (!state.empty()) job.restore(state);
    for (std::size_t i = 0; i < steps; ++i) {
      batches.push_back(job.next());
      EXPECT_EQ(job.epoch_number(), 0u);
      EXPECT_EQ(job.step_number(), batches.size() - 1);
    }
    state = job.state();
  }
  const auto& [ranks, batch, steps] = stretches.back();
  Job job(ranks, size, options(batch));
  job.restore(state);
  std::size_t samples = 0;
  for (const Samples& each : batches) samples += each.size();
  for (; samples < size; samples += batches.back().size()) {
    batches.push_back(job.next());
    ASSERT_FALSE(batches.back().empty());
    EXPECT_EQ(job.epoch_number(), 0u);
    EXPECT_EQ(job.step_number(), batches.size() - 1);
  }
  EXPECT_EQ(sorted(batches), everything(size));
  const ShardedSamplerOptions used = options(batch);
  for (const Samples& each : batches) {
    if (used.buckets.empty()) continue;
    for (const std::size_t sample : each) EXPECT_EQ(used.buckets[sample], used.buckets[each.front()]);
  }

  Job always(ranks, size, options(batch));
  always.epoch();
  EXPECT_EQ(job.epoch(), always.epoch());
  EXPECT_EQ(job.epoch_number(), 1u);
}

// Users who resume on as many machines as are free would use some samples twice, and others never.
TEST(ShardedSampler, EverySampleComesOnceHoweverOftenTheGlobalBatchChanges) {
  const std::size_t size = 1013;
  const auto plain = [](std::size_t batch) { return ShardedSamplerOptions{.seed = 3, .batch_size = batch}; };
  const auto in_order = [](std::size_t batch) {
    return ShardedSamplerOptions{.batch_size = batch, .shuffle = false};
  };
  const auto grouped = [&](std::size_t batch) { return bucketed(size, batch); };
  for (const auto& options :
       std::vector<std::function<ShardedSamplerOptions(std::size_t)>>{plain, in_order, grouped}) {
    expect_whole_epochs(size, options, {{1, 16, 11}, {4, 16, 3}, {3, 7, 5}});
    expect_whole_epochs(size, options,
                        {{4, 16, 5}, {1, 3, 40}, {1, 3, 7}, {16, 11, 1}, {2, 1, 30}, {3, 16, 0}});
    expect_whole_epochs(size, options, {{1, 1, 1}, {1, 2000, 0}});
    expect_whole_epochs(size, options, {{1, 1, 1012}, {4, 100, 0}});
    expect_whole_epochs(size, options, {{2, 8, 0}, {4, 8, 0}});
  }
}

// After a resume the samples would not come in the documented order.
TEST(ShardedSampler, TheRestIsCutAnewInTheOrderInWhichItWouldHaveCome) {
  const auto options = [](std::size_t batch) {
    return ShardedSamplerOptions{
        .batch_size = batch, .shuffle = false, .buckets = {7, 7, 7, 2, 2, 2, 7, 7, 7, 2, 2, 2, 7}};
  };
  Job job(1, 13, options(3));
  EXPECT_EQ(job.next(), (Samples{0, 1, 2}));
  // Remaining batches: 3 4 5, 6 7 8, 9 10 11, 12.
  Job smaller(2, 13, options(1));
  smaller.restore(job.state());
  const std::vector<Samples> halves = {{3, 4}, {5, 9}, {6, 7}, {8, 12}, {10, 11}};
  for (const Samples& expected : halves) EXPECT_EQ(smaller.next(), expected);
  EXPECT_EQ(smaller.next(), (Samples{0, 1})) << "the next epoch";

  Job larger(5, 13, options(1));
  larger.restore(job.state());
  const std::vector<Samples> fives = {{3, 4, 5, 9, 10}, {6, 7, 8, 12}, {11}};
  for (const Samples& expected : fives) EXPECT_EQ(larger.next(), expected);
}

// A run that is stopped right after it resumed would change the batches of the next one.
TEST(ShardedSampler, ARunThatTakesNothingLeavesNoTrace) {
  Job job(2, 100, bucketed(100, 4));
  for (int i = 0; i < 3; ++i) job.next();
  Job idle(3, 100, bucketed(100, 4));
  idle.restore(job.state());
  Job again(4, 100, bucketed(100, 2));
  again.restore(idle.state());
  EXPECT_EQ(again.state(), job.state());
  for (int i = 0; i < 30; ++i) EXPECT_EQ(again.next(), job.next()) << "batch " << i;
}

// A checkpoint could not be resumed after an upgrade.
TEST(ShardedSampler, StatesAreFixedForAllTime) {
  const std::string state =
      R"({"format":"ddl.ShardedSampler","version":1,"samples":10,"seed":1,"shuffle":true,)"
      R"("groups":"d0e3f5bbf392c5f9","step":8,"epoch":2,"segments":[[4,1],[3,1]]})";
  Job job(1, 10, {.batch_size = 3, .buckets = {5, 5, 5, 5, 5, 1, 1, 1, 1, 1}, .lengths = Lengths(10, 9)});
  job.restore(state);
  EXPECT_EQ(job.state(), state);
  EXPECT_EQ(job.next(), (Samples{0, 3, 4}));
  EXPECT_EQ(job.step_number(), 8u);
  EXPECT_EQ(job.epoch_number(), 2u);
  EXPECT_EQ(job.next(), (Samples{1, 2}));
}

// A damaged checkpoint would resume at a wrong position, or crash.
TEST(ShardedSampler, WhatIsNoStateIsRefusedAndChangesNothing) {
  Job job(2, 60, bucketed(60, 5));
  job.next();
  Job other(1, 60, bucketed(60, 4));
  other.restore(job.state());
  other.next();
  const std::string good = other.state();
  const auto with = [&](const std::string& part, const std::string& instead) {
    std::string text = good;
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
    return text.replace(text.find(part), part.size(), instead);
  };
  std::vector<std::string> bad = {
      "[]", "null", "7", "{}", "{\"format\":3}", "\xff\xfe", std::string(3, '\0'), good + "}"};
  for (std::size_t length = 0; length < good.size(); ++length) bad.push_back(good.substr(0, length));
  for (const char* name :
       {"format", "version", "samples", "seed", "shuffle", "groups", "step", "epoch", "segments"}) {
    bad.push_back(with(fmt::format("\"{}\":", name), "\"x\":"));
    bad.push_back(with(fmt::format("\"{}\":", name), fmt::format("\"{}\":-", name)));
    bad.push_back(with(fmt::format("\"{}\":", name), fmt::format("\"{}\":{{}},\"x\":", name)));
  }
  for (const char* segments :
       {"[]", "[[]]", "[[10]]", "[[10,1,2]]", "[[0,1,1]]", "[[10,1,1,1]]", "[10,1]", "[[0,1]]", "[[61,0]]",
        "[[10,1.5]]", "[[10,-1]]", "[[10,0],[4,1]]", "[[10,99]]", "[[10,18446744073709551615]]",
        "[[18446744073709551615,1]]", "[[10,1],[4,99]]", "[[1,60]]", "[[\"a\",1]]"}) {
    bad.push_back(with("[[10,1],[4,1]]", segments));
  }
  const Samples expected = other.next();
  for (const std::string& text : bad) {
    other.restore(good);
    const Error error = test::error_of([&] { other.samplers()[0].restore(text); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data) << text;
    EXPECT_EQ(other.state(), good) << text;
    EXPECT_EQ(other.next(), expected) << text;
  }
  const Error newer = test::error_of([&] { other.restore(with("\"version\":1", "\"version\":2")); });
  EXPECT_EQ(newer.code(), ErrorCode::unsupported);
  EXPECT_NE(std::string(newer.what()).find("version 2, expected 1"), std::string::npos) << newer.what();
}

// A run would silently continue with other data or in another order.
TEST(ShardedSampler, TheStateOfAnotherSamplerIsRefused) {
  ShardedSamplerOptions options = bucketed(60, 5);
  const std::string state = Job(2, 60, options).state();
  const auto refused = [&](std::size_t size, const ShardedSamplerOptions& changed) {
    Job job(2, size, changed);
    const Error error = test::error_of([&] { job.restore(state); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    return std::string(error.what());
  };
  const std::string size = refused(61, bucketed(61, 5));
  EXPECT_NE(size.find("samples 60, here 61"), std::string::npos) << size;
  ShardedSamplerOptions changed = options;
  changed.seed = 9;
  changed.shuffle = false;
  const std::string both = refused(60, changed);
  EXPECT_NE(both.find("seed 1, here 9"), std::string::npos) << both;
  EXPECT_NE(both.find("shuffle true, here false"), std::string::npos) << both;
  EXPECT_EQ(both.find("samples"), std::string::npos) << both;
  changed = options;
  changed.lengths[17] += 1;
  EXPECT_NE(refused(60, changed).find("buckets and lengths"), std::string::npos);
  changed = options;
  changed.buckets[0] = 2;
  EXPECT_NE(refused(60, changed).find("buckets and lengths"), std::string::npos);
  changed.buckets.clear();
  EXPECT_NE(refused(60, changed).find("buckets and lengths"), std::string::npos);
}

// In every step, ranks with short sentences would wait for one with long sentences.
TEST(ShardedSampler, GlobalBatchHoldsOneBucketOnly) {
  const auto options = bucketed(500, 4);
  Job job(4, 500, options);
  for (const Samples& batch : job.epoch()) {
    std::set<std::uint32_t> buckets;
    for (const std::size_t sample : batch) buckets.insert(options.buckets[sample]);
    EXPECT_EQ(buckets.size(), 1u);
  }
}

// One rank would get all long sentences of a step, and its peers would wait.
TEST(ShardedSampler, RanksGetNeighbouringLengths) {
  const auto options = bucketed(500, 4);
  Job job(4, 500, options);
  for (const Samples& batch : job.epoch()) {
    EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end(), [&](std::size_t a, std::size_t b) {
      return options.lengths[a] < options.lengths[b];
    }));
  }
}

// The last rank would always be the slowest.
TEST(ShardedSampler, RanksGetEqualTotalLengths) {
  ShardedSamplerOptions options{.batch_size = 4};
  for (std::uint32_t i = 0; i < 96; ++i) options.lengths.push_back(i);
  Job job(3, 96, options);
  std::vector<std::uint64_t> totals(3);
  for (std::size_t step = 0; step < job.steps(); ++step) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (const std::size_t sample : job.samplers()[rank].next().samples)
        totals[rank] += options.lengths[sample];
    }
  }
  // Of 1,520 each; dealt in one direction, they would be 462 apart.
  EXPECT_LT(*std::ranges::max_element(totals) - *std::ranges::min_element(totals), 60U);
}

// Each epoch would end with a run of small, noisy steps of the same bucket.
TEST(ShardedSampler, BatchesOfABucketAreSpreadOverTheEpoch) {
  const auto options = bucketed(600, 4);
  Job job(2, 600, options);
  std::size_t changes = 0;
  const auto batches = job.epoch();
  for (std::size_t i = 1; i < batches.size(); ++i) {
    changes += options.buckets[batches[i][0]] != options.buckets[batches[i - 1][0]];
  }
  EXPECT_GT(changes, batches.size() / 3);
}

// Shuffling would repeat itself.
TEST(ShardedSampler, EpochsAndSeedsDiffer) {
  Job first(2, 100, {.seed = 1, .batch_size = 5});
  Job second(2, 100, {.seed = 2, .batch_size = 5});
  const auto epoch0 = first.epoch();
  EXPECT_NE(epoch0, first.epoch());
  EXPECT_NE(epoch0, second.epoch());
  EXPECT_EQ(epoch0, Job(2, 100, {.seed = 1, .batch_size = 5}).epoch());
}

// A checkpoint resumed after an upgrade, or with another compiler, would see other batches.
TEST(ShardedSampler, SequenceIsFixedForAllTime) {
  Job job(1, 10, {.seed = 1, .batch_size = 4});
  const std::vector<Samples> expected = {{1, 9, 2, 0}, {3, 8}, {6, 7, 4, 5}};
  EXPECT_EQ(job.epoch(), expected);
}

// The shuffle would be biased: some samples would come early more often.
TEST(ShardedSampler, EverySampleComesFirstAboutEquallyOften) {
  ShardedSampler sampler(0, 1, 6, {.seed = 7, .batch_size = 1});
  std::vector<int> first(6);
  const int epochs = 6000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    ++first[sampler.next().samples[0]];
    for (int i = 1; i < 6; ++i) sampler.next();
  }
  for (const int count : first) EXPECT_NEAR(count, epochs / 6, 5 * 29);  // 5 standard deviations
}

// Evaluation could not go through a file in order.
TEST(ShardedSampler, WithoutShuffleSamplesComeInOrder) {
  Job job(2, 7, {.batch_size = 2, .shuffle = false});
  const std::vector<Samples> expected = {{0, 1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ(job.epoch(), expected);
  EXPECT_EQ(job.epoch(), expected);
  Job buckets(1, 6, {.batch_size = 2, .shuffle = false, .buckets = {9, 4, 9, 4, 9, 4}});
  const std::vector<Samples> by_first_sample = {{0, 2}, {1, 3}, {4}, {5}};
  EXPECT_EQ(buckets.epoch(), by_first_sample);
}

// An epoch's last step, in which some ranks have no samples, would crash or hang.
TEST(ShardedSampler, RaggedTailLeavesSomeRanksEmpty) {
  Job job(4, 9, {.batch_size = 2});
  ASSERT_EQ(job.steps(), 2u);
  std::multiset<std::size_t> sizes;
  for (std::size_t step = 0; step < 2; ++step) {
    for (auto& sampler : job.samplers()) sizes.insert(sampler.next().samples.size());
  }
  EXPECT_EQ(sizes, (std::multiset<std::size_t>{0, 0, 0, 1, 2, 2, 2, 2}));
}

// Every step or epoch would allocate memory.
TEST(ShardedSampler, NextAllocatesNothing) {
#ifdef DDL_SANITIZED
  GTEST_SKIP() << "a sanitizer has its own operator new";
#endif
  ShardedSampler sampler(1, 2, 640, bucketed(640, 8));
  ShardedSampler other(0, 1, 640, bucketed(640, 5));
  other.next();
  ShardedBatch batch;
  for (const std::string& state : {sampler.state(), other.state()}) {
    sampler.restore(state);
    for (std::size_t i = 0; i < 2 * sampler.steps_per_epoch(); ++i) sampler.next(batch);
    const long before = test::allocation_count();
    ASSERT_GT(before, 0) << "allocations are not counted";
    for (std::size_t i = 0; i < 3 * sampler.steps_per_epoch(); ++i) sampler.next(batch);
    EXPECT_EQ(test::allocation_count(), before);
  }
}

// A request for "everything in one batch" would overflow.
TEST(ShardedSampler, HugeBatchIsTheWholeDataset) {
  Job job(4, 10, {.batch_size = std::numeric_limits<std::size_t>::max()});
  EXPECT_EQ(job.steps(), 1u);
  EXPECT_EQ(sorted(job.epoch()), everything(10));
}

// The message would not say what to change.
TEST(ShardedSampler, BadInputIsNamed) {
  const std::string few = failure(0, 4, 3, {});
  EXPECT_NE(few.find("3 samples"), std::string::npos) << few;
  EXPECT_NE(few.find("4 ranks"), std::string::npos) << few;
  EXPECT_NE(failure(0, 1, 0, {}).find("empty"), std::string::npos);
  EXPECT_NE(failure(0, 1, 5, {.batch_size = 0}).find("batch size is 0"), std::string::npos);
  EXPECT_NE(failure(2, 2, 5, {}).find("rank 2 of 2"), std::string::npos);
  EXPECT_NE(failure(-1, 2, 5, {}).find("rank -1"), std::string::npos);
  EXPECT_NE(failure(0, 0, 5, {}).find("0 ranks"), std::string::npos);
  EXPECT_NE(failure(0, 1, 5, {.batch_length = 9}).find("length of 9 without lengths"), std::string::npos);
  const std::string buckets = failure(0, 1, 5, {.buckets = {1, 2}});
  EXPECT_NE(buckets.find("2 buckets for 5 samples"), std::string::npos) << buckets;
  const std::string lengths = failure(0, 1, 2, {.lengths = {1, 2, 3}});
  EXPECT_NE(lengths.find("3 lengths for 2 samples"), std::string::npos) << lengths;
}

}  // namespace
}  // namespace ddl
