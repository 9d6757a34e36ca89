#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {

/// Settings of a `ShardedSampler`; the same on all ranks.
struct ShardedSamplerOptions {
  std::uint64_t seed = 1;  ///< Of the shuffling; each epoch is shuffled differently.
  /// Samples per rank and step, at least 1; a global batch is this times the number of ranks.
  std::size_t batch_size = 1;
  /// If above 0, batches are cut by length and `batch_size` is not used: a global batch holds as many samples
  /// of its bucket as can have together a length of `batch_length` times the number of ranks, if all were as
  /// long as the bucket's longest; at least one. Needs `lengths`.
  std::size_t batch_length = 0;
  bool shuffle = true;  ///< False: samples come in index order.
  /// Length bucket of each sample, any numbers, or empty. A global batch holds samples of one bucket only, so
  /// that no rank waits for another's longer batch.
  std::vector<std::uint32_t> buckets = {};
  /// Length of each sample, or empty. A global batch is sorted by length before it is dealt, so that the
  /// ranks' shares have similar total lengths.
  std::vector<std::uint32_t> lengths = {};
};

/// One rank's share of one step.
struct ShardedBatch {
  std::uint64_t step = 0;   ///< From 0, counted over all epochs and resumed runs; the same on all ranks.
  std::uint64_t epoch = 0;  ///< From 0.
  std::vector<std::size_t> samples;  ///< This rank's; may be empty if the global batch is small.
  std::size_t global_samples = 0;    ///< Number of samples of all ranks in this step.
};

/// Deals a dataset's samples to ranks: in each epoch every sample goes to exactly one rank in exactly one
/// step, and every rank has the same number of steps.
///
/// The sequence of global batches is a pure function of (seed, shuffle, dataset size, buckets, lengths,
/// global batch size or length), the same with every compiler and standard library: 4 ranks x 16 and 1 rank x
/// 64 take the same samples in the same steps. An epoch's samples are shuffled within each bucket and cut
/// into global batches, and the batches are then shuffled. Without `shuffle`, batches are ordered by their
/// lowest sample index. A global batch is dealt to and fro: rank r of n gets positions r, 2n-1-r, 2n+r,
/// 4n-1-r ... of it. The samples of a bucket that do not fill a global batch form a smaller one; none is
/// dropped.
///
/// A run can end after any step and resume from `state()`, also with another number of ranks and another
/// batch size or length: every epoch still deals every sample exactly once.
///
/// No communication; not thread-safe. Memory: 8 bytes per sample, 16 per step, and the options. The first
/// `next` of an epoch costs O(samples), or O(samples log batch) with lengths; any other costs O(batch).
class ShardedSampler {
 public:
  /// For `context`'s rank and size and a dataset of `dataset_size` samples. Throws `invalid_argument` for an
  /// empty dataset, fewer samples than ranks, a batch size of 0, `buckets` or `lengths` of another size than
  /// the dataset, and a `batch_length` without `lengths`.
  ShardedSampler(const Context& context, std::size_t dataset_size, ShardedSamplerOptions options);
  /// The same for an explicit rank and number of ranks; also throws `invalid_argument` unless 0 <= rank <
  /// ranks.
  ShardedSampler(int rank, int ranks, std::size_t dataset_size, ShardedSamplerOptions options);

  /// The next batch. Epochs follow one another without end.
  ShardedBatch next();
  /// Writes the next batch into `batch` and reuses its memory: allocates only if `samples` must grow.
  void next(ShardedBatch& batch);
  /// Number of steps of an epoch that has this sampler's global batch size or length from its start.
  [[nodiscard]] std::size_t steps_per_epoch() const noexcept;

  /// The sampler's position as one line of JSON for `restore`. The same on all ranks. About 200 bytes, and 10
  /// to 20 more for each change of the global batch size in this epoch.
  [[nodiscard]] std::string state() const;
  /// Resumes from the `state()` of a sampler with the same dataset size, seed, shuffle, buckets and lengths.
  ///
  /// With the same global batch size, the remaining batches are exactly those that were left, whatever the
  /// number of ranks. With another size, the epoch's remaining samples, in the order of their old batches,
  /// are cut into new batches within each bucket; a new batch takes the place of its first sample. From the
  /// next epoch on, the batches are those of a sampler that always had this size. The step count continues.
  /// Costs O(samples) for each global batch size that the epoch has seen.
  ///
  /// Errors, which leave the sampler unchanged: `corrupt_data` if the text is not such a state, `unsupported`
  /// if another version of the library wrote it, `mismatch`, with the differences, if another sampler did.
  void restore(std::string_view state);

 private:
  struct GlobalBatch {
    std::size_t begin;  // in order_
    std::size_t count;
  };

  /// How large global batches are.
  struct BatchSize {
    std::size_t most = 0;    // samples, or sum of lengths
    bool is_length = false;  // which of them
    friend bool operator==(const BatchSize&, const BatchSize&) = default;
  };

  /// Batches dealt with one size of global batches.
  struct Segment {
    BatchSize size;
    std::size_t taken;
  };

  void check() const;
  void number_buckets();
  void group_by_bucket();
  [[nodiscard]] std::size_t samples_of(const BatchSize& size, std::size_t bucket) const;
  void cut_epoch(const BatchSize& size);
  void cut_rest(const Segment& done, const BatchSize& size);
  void sort_by_length();
  [[nodiscard]] bool build_epoch();

  int rank_;
  int ranks_;
  std::size_t size_;
  ShardedSamplerOptions options_;
  std::size_t steps_per_epoch_ = 0;
  BatchSize global_batch_;
  std::uint64_t groups_hash_ = 0;  // of buckets and lengths
  std::uint64_t step_ = 0;
  std::uint64_t epoch_ = 0;
  std::vector<Segment> segments_;           // of this epoch; the last one has this sampler's global batch
  bool built_ = false;                      // whether order_ and batches_ hold this epoch
  std::vector<std::size_t> order_;          // samples, bucket after bucket
  std::vector<std::size_t> bucket_begins_;  // positions in order_, and its size at the end
  std::vector<std::size_t> longest_;        // sample of each bucket, if lengths are given
  std::vector<std::size_t> bucket_fill_;    // scratch
  std::vector<GlobalBatch> batches_;        // of the last segment, step after step
};

}  // namespace ddl
