#include "ddl/sharded_sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/random.hpp"

namespace ddl {

ShardedSampler::ShardedSampler(const Context& context, std::size_t dataset_size,
                               ShardedSamplerOptions options)
    : ShardedSampler(context.rank(), context.size(), dataset_size, std::move(options)) {}

ShardedSampler::ShardedSampler(int rank, int ranks, std::size_t dataset_size, ShardedSamplerOptions options)
    : rank_(rank), ranks_(ranks), size_(dataset_size), options_(std::move(options)) {
  check();
  const auto n = static_cast<std::size_t>(ranks_);
  // The product could overflow; a batch as large as the dataset is the dataset.
  global_batch_size_ = options_.batch_size > size_ / n ? size_ : options_.batch_size * n;
  order_.resize(size_);
  number_buckets();
  for (std::size_t bucket = 0; bucket + 1 < bucket_begins_.size(); ++bucket) {
    const std::size_t samples = bucket_begins_[bucket + 1] - bucket_begins_[bucket];
    steps_per_epoch_ += (samples + global_batch_size_ - 1) / global_batch_size_;
  }
  batches_.reserve(steps_per_epoch_);
  bucket_fill_.reserve(bucket_begins_.size());
}

void ShardedSampler::check() const {
  const auto fail = [](const std::string& message) {
    throw Error(ErrorCode::invalid_argument, "ShardedSampler: " + message);
  };
  if (ranks_ < 1 || rank_ < 0 || rank_ >= ranks_) {
    fail(fmt::format("rank {} of {} ranks; expected 0 <= rank < ranks", rank_, ranks_));
  }
  if (options_.batch_size == 0) fail("the batch size is 0; expected at least 1 sample per rank");
  if (size_ == 0) fail("the dataset is empty; expected at least one sample per rank");
  if (size_ < static_cast<std::size_t>(ranks_)) {
    fail(fmt::format("{} samples for {} ranks; every rank needs at least one: use more data or fewer ranks",
                     size_, ranks_));
  }
  if (!options_.buckets.empty() && options_.buckets.size() != size_) {
    fail(fmt::format("{} buckets for {} samples; expected one for each sample, or none",
                     options_.buckets.size(), size_));
  }
  if (!options_.lengths.empty() && options_.lengths.size() != size_) {
    fail(fmt::format("{} lengths for {} samples; expected one for each sample, or none",
                     options_.lengths.size(), size_));
  }
}

void ShardedSampler::number_buckets() {
  auto& buckets = options_.buckets;
  std::vector<std::uint32_t> values = buckets;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  bucket_begins_.assign(std::max<std::size_t>(values.size(), 1) + 1, 0);
  for (std::uint32_t& bucket : buckets) {
    const auto at = std::lower_bound(values.begin(), values.end(), bucket);
    bucket = static_cast<std::uint32_t>(at - values.begin());
    ++bucket_begins_[bucket + 1];
  }
  if (buckets.empty()) bucket_begins_[1] = size_;
  std::partial_sum(bucket_begins_.begin(), bucket_begins_.end(), bucket_begins_.begin());
}

// In order of index within each bucket, so that an epoch does not depend on those before it.
void ShardedSampler::group_by_bucket() {
  if (options_.buckets.empty()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    return;
  }
  bucket_fill_.assign(bucket_begins_.begin(), bucket_begins_.end() - 1);
  for (std::size_t sample = 0; sample < size_; ++sample) {
    order_[bucket_fill_[options_.buckets[sample]]++] = sample;
  }
}

void ShardedSampler::build_epoch(std::uint64_t epoch) {
  SplitMix64 random(options_.seed, epoch);
  group_by_bucket();
  batches_.clear();
  for (std::size_t bucket = 0; bucket + 1 < bucket_begins_.size(); ++bucket) {
    const std::size_t begin = bucket_begins_[bucket];
    const std::size_t end = bucket_begins_[bucket + 1];
    if (options_.shuffle) shuffle(std::span(order_).subspan(begin, end - begin), random);
    for (std::size_t at = begin; at < end; at += global_batch_size_) {
      batches_.push_back({at, std::min(global_batch_size_, end - at)});
    }
  }
  if (options_.shuffle) {
    shuffle(std::span(batches_), random);
  } else {
    std::sort(batches_.begin(), batches_.end(),
              [&](const GlobalBatch& a, const GlobalBatch& b) { return order_[a.begin] < order_[b.begin]; });
  }
  if (const auto& lengths = options_.lengths; !lengths.empty()) {
    for (const GlobalBatch& batch : batches_) {
      const auto first = order_.begin() + static_cast<std::ptrdiff_t>(batch.begin);
      // A total order: std::stable_sort would allocate.
      std::sort(first, first + static_cast<std::ptrdiff_t>(batch.count), [&](std::size_t a, std::size_t b) {
        return lengths[a] != lengths[b] ? lengths[a] < lengths[b] : a < b;
      });
    }
  }
  built_epoch_ = epoch;
}

ShardedBatch ShardedSampler::next() {
  ShardedBatch batch;
  next(batch);
  return batch;
}

void ShardedSampler::next(ShardedBatch& batch) {
  const std::uint64_t epoch = step_ / steps_per_epoch_;
  if (built_epoch_ != epoch) build_epoch(epoch);
  const GlobalBatch& global = batches_[step_ % steps_per_epoch_];
  batch.step = step_;
  batch.epoch = epoch;
  batch.global_samples = global.count;
  batch.samples.clear();
  const auto stride = static_cast<std::size_t>(ranks_);
  batch.samples.reserve((global.count + stride - 1) / stride);
  for (auto at = static_cast<std::size_t>(rank_); at < global.count; at += stride) {
    batch.samples.push_back(order_[global.begin + at]);
  }
  ++step_;
}

std::size_t ShardedSampler::steps_per_epoch() const noexcept { return steps_per_epoch_; }

void ShardedSampler::seek(std::uint64_t position) { step_ = position; }

}  // namespace ddl
