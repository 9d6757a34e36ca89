#include "ddl/sharded_sampler.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ddl/hash.hpp"
#include "ddl/parameters/parameters.hpp"
#include "topology/json_fields.hpp"
#include "topology/refuse.hpp"

namespace ddl {

ShardedSampler::ShardedSampler(const Context& context, std::size_t dataset_size,
                               ShardedSamplerOptions options)
    : ShardedSampler(context.rank(), context.size(), dataset_size, std::move(options)) {}

ShardedSampler::ShardedSampler(int rank, int ranks, std::size_t dataset_size, ShardedSamplerOptions options)
    : rank_(rank), ranks_(ranks), size_(dataset_size), options_(std::move(options)) {
  check();
  const auto n = as_index(ranks_);
  const bool by_length = options_.batch_length > 0;
  const std::size_t each = by_length ? options_.batch_length : options_.batch_size;
  // Avoids overflow of the product; a global batch never has more samples than the dataset.
  const std::size_t largest = by_length ? std::numeric_limits<std::uint32_t>::max() : size_;
  // Avoids overflow of the product; a global batch never has more samples than the dataset.
  global_batch_ = {each > largest / n ? largest : each * n, by_length};
  order_.resize(size_);
  number_buckets();
  groups_hash_ = hash_of(std::span(options_.lengths), hash_of(std::span(options_.buckets)));
  segments_ = {{global_batch_, 0}};
  for (std::size_t bucket = 0; bucket + 1 < bucket_begins_.size(); ++bucket) {
    const std::size_t samples = bucket_begins_[bucket + 1] - bucket_begins_[bucket];
    const std::size_t most = samples_of(global_batch_, bucket);
    steps_per_epoch_ += (samples + most - 1) / most;
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
  if (options_.batch_size == 0 && options_.batch_length == 0)
    fail("the batch size is 0; expected at least 1 sample per rank");
  if (options_.batch_length > 0 && options_.lengths.empty())
    fail(fmt::format("a batch length of {} without lengths; expected one for each sample",
                     options_.batch_length));
  if (size_ == 0) fail("the dataset is empty; expected at least one sample per rank");
  if (size_ < as_index(ranks_)) {
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
  longest_.assign(bucket_begins_.size() - 1, 0);
  for (std::size_t sample = 0; sample < options_.lengths.size(); ++sample) {
    std::size_t& longest = longest_[buckets.empty() ? 0 : buckets[sample]];
    longest = std::max<std::size_t>(longest, options_.lengths[sample]);
  }
}

/// How many samples a global batch of the bucket holds.
std::size_t ShardedSampler::samples_of(const BatchSize& size, std::size_t bucket) const {
  if (!size.is_length) return size.most;
  return std::max<std::size_t>(size.most / std::max<std::size_t>(longest_[bucket], 1), 1);
}

// Orders samples by index within each bucket, so that an epoch's shuffle does not depend on earlier epochs.
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

void ShardedSampler::cut_epoch(const BatchSize& size) {
  SplitMix64 random(options_.seed, epoch_);
  group_by_bucket();
  batches_.clear();
  for (std::size_t bucket = 0; bucket + 1 < bucket_begins_.size(); ++bucket) {
    const std::size_t begin = bucket_begins_[bucket];
    const std::size_t end = bucket_begins_[bucket + 1];
    if (options_.shuffle) shuffle(std::span(order_).subspan(begin, end - begin), random);
    const std::size_t most = samples_of(size, bucket);
    for (std::size_t at = begin; at < end; at += most) batches_.push_back({at, std::min(most, end - at)});
  }
  if (options_.shuffle) {
    shuffle(std::span(batches_), random);
  } else {
    std::sort(batches_.begin(), batches_.end(),
              [&](const GlobalBatch& a, const GlobalBatch& b) { return order_[a.begin] < order_[b.begin]; });
  }
}

// Cuts the rest of an epoch into batches of another size. When a bucket's newest batch is full, its next
// sample begins another batch, so batches keep the order of their first samples. The remaining samples of a
// bucket move to its beginning.
void ShardedSampler::cut_rest(const Segment& done, const BatchSize& size) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  const std::vector<std::size_t> order = order_;
  std::vector<std::size_t> newest(bucket_begins_.size() - 1, none);
  std::vector<GlobalBatch> cut;
  bucket_fill_.assign(bucket_begins_.begin(), bucket_begins_.end() - 1);
  for (const GlobalBatch& batch : std::span(batches_).subspan(done.taken)) {
    const auto after = std::upper_bound(bucket_begins_.begin(), bucket_begins_.end(), batch.begin);
    const auto bucket = as_index(after - bucket_begins_.begin()) - 1;
    for (const std::size_t sample : std::span(order).subspan(batch.begin, batch.count)) {
      if (newest[bucket] == none || cut[newest[bucket]].count == samples_of(size, bucket)) {
        newest[bucket] = cut.size();
        cut.push_back({bucket_fill_[bucket], 0});
      }
      order_[bucket_fill_[bucket]++] = sample;
      ++cut[newest[bucket]].count;
    }
  }
  batches_.assign(cut.begin(), cut.end());
}

void ShardedSampler::sort_by_length() {
  const auto& lengths = options_.lengths;
  if (lengths.empty()) return;
  for (const GlobalBatch& batch : batches_) {
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(batch.begin);
    // Compares indices too instead of using std::stable_sort, which would allocate.
    std::sort(first, first + static_cast<std::ptrdiff_t>(batch.count), [&](std::size_t a, std::size_t b) {
      return lengths[a] != lengths[b] ? lengths[a] < lengths[b] : a < b;
    });
  }
}

/// Builds the rest of the epoch from its segments. Returns false if these leave no batch in the epoch.
bool ShardedSampler::build_epoch() {
  built_ = false;
  cut_epoch(segments_.front().size);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].taken >= batches_.size()) return false;
    if (i + 1 < segments_.size()) cut_rest(segments_[i], segments_[i + 1].size);
  }
  sort_by_length();
  built_ = true;
  return true;
}

ShardedBatch ShardedSampler::next() {
  ShardedBatch batch;
  next(batch);
  return batch;
}

void ShardedSampler::next(ShardedBatch& batch) {
  if (!built_ && !build_epoch()) throw Error(ErrorCode::internal, "ShardedSampler: an epoch without a batch");
  const GlobalBatch& global = batches_[segments_.back().taken];
  batch.step = step_;
  batch.epoch = epoch_;
  batch.global_samples = global.count;
  batch.samples.clear();
  const auto ranks = as_index(ranks_);
  batch.samples.reserve((global.count + ranks - 1) / ranks);
  // To and fro: if the first of each round were always the same rank's, that one would have the shortest
  // samples.
  bool forth = true;
  for (std::size_t round = 0; round < global.count; round += ranks, forth = !forth) {
    const std::size_t at = round + (forth ? as_index(rank_) : as_index(ranks_ - 1 - rank_));
    if (at < global.count) batch.samples.push_back(order_[global.begin + at]);
  }
  ++step_;
  if (++segments_.back().taken < batches_.size()) return;
  ++epoch_;
  segments_.assign(1, {global_batch_, 0});
  built_ = false;
}

std::size_t ShardedSampler::steps_per_epoch() const noexcept { return steps_per_epoch_; }

// The state of a sampler as text.

namespace {

constexpr const char* not_a_state = "ShardedSampler: not the state of a sampler";

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  fail_with(ErrorCode::corrupt_data, "{}: found {}, expected {}", not_a_state, found, expected);
}

struct State {
  std::string format = "ddl.ShardedSampler";
  std::uint64_t version = 1;
  std::uint64_t samples = 0;
  std::uint64_t seed = 0;
  bool shuffle = false;
  std::string groups = {};
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  /// Global batch and batches taken; a third number, 1, if the global batch is a length.
  std::vector<std::vector<std::uint64_t>> segments = {};
};

template <typename Fields, topology::MaybeConst<State> Value>
void describe(Fields& fields, Value& state) {
  fields("format", state.format);
  fields("version", state.version);
  fields("samples", state.samples);
  fields("seed", state.seed);
  fields("shuffle", state.shuffle);
  fields("groups", state.groups);
  fields("step", state.step);
  fields("epoch", state.epoch);
  fields("segments", state.segments, SIZE_MAX, std::size_t{3});
}

/// Checked before the fields, because a state of another version may have other fields.
void require_known_version(std::string_view text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object() || object.value("format", nlohmann::json()) != State().format) return;
  const auto version = object.value("version", nlohmann::json());
  if (!version.is_number_unsigned() || version == State().version) return;
  fail_with(ErrorCode::unsupported,
            "ShardedSampler: found a state of version {}, expected {}: it was written by another "
            "version of ddl; use that one to resume from it",
            version.dump(), State().version);
}

State parse_state(std::string_view text) {
  require_known_version(text);
  auto state = topology::parsed_json<State>(text, not_a_state);
  if (state.format != State().format) {
    refuse("format " + topology::in_quotes(state.format), fmt::format("'{}'", State().format));
  }
  if (state.segments.empty()) refuse("no segments", "pairs of global batch and batches taken");
  for (const auto& segment : state.segments) {
    if (segment.size() != 2 && (segment.size() != 3 || segment[2] != 1))
      refuse("a bad segment", "global batch and batches taken");
  }
  return state;
}

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// Throws `mismatch` unless both samplers have the same samples in the same order.
void require_same(const State& found, const State& here) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* name, const auto& theirs, const auto& own) {
    if (theirs != own) differences.push_back(fmt::format("{} {}, here {}", name, theirs, own));
  };
  compare("samples", found.samples, here.samples);
  compare("seed", found.seed, here.seed);
  compare("shuffle", found.shuffle, here.shuffle);
  compare("hash of buckets and lengths", topology::printable(found.groups), here.groups);
  if (differences.empty()) return;
  fail_with(ErrorCode::mismatch,
            "ShardedSampler: the state is of another sampler: {}; to resume from it, give the "
            "dataset and options that it was made with (only batch size or length, and ranks, may differ)",
            fmt::join(differences, "; "));
}

}  // namespace

std::string ShardedSampler::state() const {
  State state{.samples = size_,
              .seed = options_.seed,
              .shuffle = options_.shuffle,
              .groups = hex(groups_hash_),
              .step = step_,
              .epoch = epoch_};
  for (const Segment& each : segments_) {
    state.segments.push_back({each.size.most, each.taken});
    if (each.size.is_length) state.segments.back().push_back(1);
  }
  return topology::json_line(state);
}

void ShardedSampler::restore(std::string_view text) {
  const State state = parse_state(text);
  require_same(
      state,
      {.samples = size_, .seed = options_.seed, .shuffle = options_.shuffle, .groups = hex(groups_hash_)});
  std::vector<Segment> segments;
  for (const auto& segment : state.segments) {
    const std::uint64_t global_batch = segment[0];
    const std::uint64_t taken = segment[1];
    const bool is_length = segment.size() == 3;
    if (is_length && options_.lengths.empty()) refuse("batches by length", "samples that have lengths");
    if (global_batch == 0 || (!is_length && global_batch > size_)) {
      refuse(fmt::format("a global batch of {}", global_batch), fmt::format("1 to {} samples", size_));
    }
    const bool is_last = segments.size() + 1 == state.segments.size();
    if (taken == 0 && !is_last) refuse("a segment of no batches", "one or more");
    segments.push_back({{global_batch, is_length}, taken});
  }
  // Drops a last segment without batches, because a run that takes none does not affect the order.
  if (segments.back().taken == 0) segments.pop_back();
  if (segments.empty() || segments.back().size != global_batch_) segments.push_back({global_batch_, 0});

  segments.swap(segments_);
  const std::uint64_t old_epoch = std::exchange(epoch_, state.epoch);
  if (!build_epoch()) {
    segments.swap(segments_);
    epoch_ = old_epoch;
    refuse(fmt::format("more batches taken than epoch {} has", state.epoch), "at least one left");
  }
  step_ = state.step;
}

}  // namespace ddl
