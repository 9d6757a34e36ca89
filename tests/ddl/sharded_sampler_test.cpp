#include "ddl/sharded_sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "ddl/error.hpp"

namespace ddl {
namespace {

using Samples = std::vector<std::size_t>;

/// The batches of every rank in lock step, put together again as global batches.
class Job {
 public:
  Job(int ranks, std::size_t dataset, const ShardedSamplerOptions& options) {
    for (int rank = 0; rank < ranks; ++rank) samplers_.emplace_back(rank, ranks, dataset, options);
  }
  std::vector<ShardedSampler>& samplers() { return samplers_; }
  std::size_t steps() const { return samplers_.front().steps_per_epoch(); }

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
    }
    EXPECT_EQ(global.size(), parts.front().global_samples);
    return global;
  }

  std::vector<Samples> epoch() {
    std::vector<Samples> batches;
    for (std::size_t i = 0; i < steps(); ++i) batches.push_back(next());
    return batches;
  }

 private:
  std::vector<ShardedSampler> samplers_;
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

/// Three buckets of uneven sizes with lengths that fit them.
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

// Lost otherwise: samples that are never trained on, or twice in an epoch.
TEST(ShardedSampler, EveryEpochTakesEverySampleExactlyOnce) {
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

// Lost otherwise: ranks that wait for each other forever at the end of an epoch.
TEST(ShardedSampler, RanksTakeTheSameNumberOfSteps) {
  Job job(4, 103, bucketed(103, 5));
  for (auto& sampler : job.samplers()) EXPECT_EQ(sampler.steps_per_epoch(), job.steps());
  for (std::size_t i = 0; i < job.steps(); ++i) {
    for (auto& sampler : job.samplers()) EXPECT_EQ(sampler.next().epoch, 0u);
  }
  for (auto& sampler : job.samplers()) EXPECT_EQ(sampler.next().epoch, 1u);
}

// Lost otherwise: the claim that 4 ranks x 16 train as 1 rank x 64 does.
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

// Lost otherwise: a run resumed on another number of ranks repeats or skips samples.
TEST(ShardedSampler, SeekContinuesOnAnotherNumberOfRanks) {
  const std::size_t size = 211;
  Job four(4, size, bucketed(size, 3));
  const std::size_t position = 2 * four.steps() + 5;
  for (std::size_t i = 0; i < position; ++i) four.next();
  EXPECT_EQ(four.samplers()[0].position(), position);

  Job two(2, size, bucketed(size, 6));
  for (auto& sampler : two.samplers()) sampler.seek(position);
  for (std::size_t i = 0; i < 2 * four.steps(); ++i) EXPECT_EQ(two.next(), four.next()) << "step " << i;

  for (auto& sampler : two.samplers()) sampler.seek(0);
  EXPECT_EQ(two.next(), Job(1, size, bucketed(size, 12)).next());
}

// Lost otherwise: a rank with short sentences waits for one with long sentences in every step.
TEST(ShardedSampler, GlobalBatchHoldsOneBucketOnly) {
  const auto options = bucketed(500, 4);
  Job job(4, 500, options);
  for (const Samples& batch : job.epoch()) {
    std::set<std::uint32_t> buckets;
    for (const std::size_t sample : batch) buckets.insert(options.buckets[sample]);
    EXPECT_EQ(buckets.size(), 1u);
  }
}

// Lost otherwise: one rank gets a step's long sentences, and its peers wait.
TEST(ShardedSampler, RanksGetNeighbouringLengths) {
  const auto options = bucketed(500, 4);
  Job job(4, 500, options);
  for (const Samples& batch : job.epoch()) {
    EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end(), [&](std::size_t a, std::size_t b) {
      return options.lengths[a] < options.lengths[b];
    }));
  }
}

// Lost otherwise: each epoch ends with a run of small, noisy steps of the same bucket.
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

// Lost otherwise: shuffling that repeats itself.
TEST(ShardedSampler, EpochsAndSeedsDiffer) {
  Job first(2, 100, {.seed = 1, .batch_size = 5});
  Job second(2, 100, {.seed = 2, .batch_size = 5});
  const auto epoch0 = first.epoch();
  EXPECT_NE(epoch0, first.epoch());
  EXPECT_NE(epoch0, second.epoch());
  EXPECT_EQ(epoch0, Job(2, 100, {.seed = 1, .batch_size = 5}).epoch());
}

// Lost otherwise: a checkpoint resumed after an upgrade, or with another compiler, sees other batches.
TEST(ShardedSampler, SequenceIsFixedForAllTime) {
  Job job(1, 10, {.seed = 1, .batch_size = 4});
  const std::vector<Samples> expected = {{1, 9, 2, 0}, {3, 8}, {6, 7, 4, 5}};
  EXPECT_EQ(job.epoch(), expected);
}

// Lost otherwise: a biased shuffle, in which some samples always come early.
TEST(ShardedSampler, EverySampleComesFirstAboutEquallyOften) {
  ShardedSampler sampler(0, 1, 6, {.seed = 7, .batch_size = 1});
  std::vector<int> first(6);
  const int epochs = 6000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    sampler.seek(static_cast<std::uint64_t>(epoch) * 6);
    ++first[sampler.next().samples[0]];
  }
  for (const int count : first) EXPECT_NEAR(count, epochs / 6, 5 * 29);  // 5 standard deviations
}

// Lost otherwise: evaluation in the order of the file.
TEST(ShardedSampler, WithoutShuffleSamplesComeInOrder) {
  Job job(2, 7, {.batch_size = 2, .shuffle = false});
  const std::vector<Samples> expected = {{0, 1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ(job.epoch(), expected);
  EXPECT_EQ(job.epoch(), expected);
  Job buckets(1, 6, {.batch_size = 2, .shuffle = false, .buckets = {9, 4, 9, 4, 9, 4}});
  const std::vector<Samples> by_first_sample = {{0, 2}, {1, 3}, {4}, {5}};
  EXPECT_EQ(buckets.epoch(), by_first_sample);
}

// Lost otherwise: a crash or a hang in an epoch's last step, when some ranks have nothing.
TEST(ShardedSampler, RaggedTailLeavesSomeRanksEmpty) {
  Job job(4, 9, {.batch_size = 2});
  ASSERT_EQ(job.steps(), 2u);
  std::multiset<std::size_t> sizes;
  for (std::size_t step = 0; step < 2; ++step) {
    for (auto& sampler : job.samplers()) sizes.insert(sampler.next().samples.size());
  }
  EXPECT_EQ(sizes, (std::multiset<std::size_t>{0, 0, 0, 1, 2, 2, 2, 2}));
}

// Lost otherwise: an allocation in every step of training.
TEST(ShardedSampler, NextReusesTheBatchesMemory) {
  ShardedSampler sampler(1, 2, 64, {.batch_size = 8});
  ShardedBatch batch;
  sampler.next(batch);
  const std::size_t* memory = batch.samples.data();
  for (int i = 0; i < 20; ++i) {
    sampler.next(batch);
    EXPECT_EQ(batch.samples.data(), memory);
  }
}

// Lost otherwise: an overflow where a user asks for "everything in one batch".
TEST(ShardedSampler, HugeBatchIsTheWholeDataset) {
  Job job(4, 10, {.batch_size = std::numeric_limits<std::size_t>::max()});
  EXPECT_EQ(job.steps(), 1u);
  EXPECT_EQ(sorted(job.epoch()), everything(10));
}

// Lost otherwise: a message that says what to change.
TEST(ShardedSampler, BadInputIsNamed) {
  const std::string few = failure(0, 4, 3, {});
  EXPECT_NE(few.find("3 samples"), std::string::npos) << few;
  EXPECT_NE(few.find("4 ranks"), std::string::npos) << few;
  EXPECT_NE(failure(0, 1, 0, {}).find("empty"), std::string::npos);
  EXPECT_NE(failure(0, 1, 5, {.batch_size = 0}).find("batch size is 0"), std::string::npos);
  EXPECT_NE(failure(2, 2, 5, {}).find("rank 2 of 2"), std::string::npos);
  EXPECT_NE(failure(-1, 2, 5, {}).find("rank -1"), std::string::npos);
  EXPECT_NE(failure(0, 0, 5, {}).find("0 ranks"), std::string::npos);
  const std::string buckets = failure(0, 1, 5, {.buckets = {1, 2}});
  EXPECT_NE(buckets.find("2 buckets for 5 samples"), std::string::npos) << buckets;
  const std::string lengths = failure(0, 1, 2, {.lengths = {1, 2, 3}});
  EXPECT_NE(lengths.find("3 lengths for 2 samples"), std::string::npos) << lengths;
}

}  // namespace
}  // namespace ddl
