#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {

struct ShardedSamplerOptions {
  std::uint64_t seed = 1;
  /// Samples per rank and step; a global batch is this times the number of ranks.
  std::size_t batch_size = 1;
  /// False: samples in order of index.
  bool shuffle = true;
  /// Length bucket of each sample, or empty. A global batch holds samples of one bucket only, so no
  /// rank waits for another's longer batch.
  std::vector<std::uint32_t> buckets = {};
  /// Length of each sample, or empty. A global batch is ordered by it before it is dealt out, so
  /// that ranks get alike shares.
  std::vector<std::uint32_t> lengths = {};
};

/// What one rank does in one step.
struct ShardedBatch {
  std::uint64_t step = 0;   ///< Counts from 0 over all epochs and resumed runs; the same on all ranks.
  std::uint64_t epoch = 0;  ///< Counts from 0.
  std::vector<std::size_t> samples;  ///< This rank's samples; may be empty in an epoch's last steps.
  std::size_t global_samples = 0;    ///< Samples of all ranks together in this step.
};

/// Deals a dataset's samples to ranks: in each epoch every sample goes to exactly one rank in exactly
/// one step, and every rank has the same number of steps.
///
/// The sequence of global batches is a pure function of (seed, dataset size, buckets, lengths, global
/// batch size), with every compiler and standard library: 4 ranks x 16 and 1 rank x 64 take the same
/// samples in the same steps. An epoch's samples are shuffled within each bucket and cut into global
/// batches, and the batches are shuffled in turn. Without `shuffle` a batch comes when its lowest
/// index does. Rank r of n gets positions r, r+n, r+2n ... of a global batch. Samples of a bucket that
/// do not fill a global batch form a smaller one; none is dropped.
///
/// A run can end after any step and go on from `state()`, also on another number of ranks and with another
/// batch size: every epoch still deals every sample exactly once.
///
/// No communication; not thread-safe. Memory: 8 bytes a sample, 16 a step, and the options. An epoch's first
/// `next` costs O(samples), or O(samples log batch) with lengths; any other O(batch). Errors:
/// `invalid_argument` for an empty dataset, fewer samples than ranks, a batch of 0, a rank that is not one of
/// the ranks, or buckets/lengths of another size than the dataset.
class ShardedSampler {
 public:
  ShardedSampler(const Context& context, std::size_t dataset_size, ShardedSamplerOptions options);
  /// The same for an explicit rank and number of ranks.
  ShardedSampler(int rank, int ranks, std::size_t dataset_size, ShardedSamplerOptions options);

  /// The next batch; runs through epochs without end.
  ShardedBatch next();
  /// The same into an existing batch, whose memory is reused: allocates only where the batch outgrows it.
  void next(ShardedBatch& batch);
  /// Steps in every epoch.
  [[nodiscard]] std::size_t steps_per_epoch() const noexcept;

  /// Where the sampler stands, as a line of JSON: the same on all ranks, some 200 bytes, and 10 to 20 more
  /// for each time that the global batch has changed in this epoch.
  [[nodiscard]] std::string state() const;
  /// Goes on from the `state()` of a sampler of the same dataset size, seed, shuffle, buckets and lengths.
  ///
  /// With the same global batch the remaining batches are exactly those that were left, whatever the number
  /// of ranks. With another one the epoch's remaining samples, in the order in which their batches would have
  /// come, are cut anew within each bucket, and a batch comes when its first sample would have; from the next
  /// epoch on all is as if it had always had this size. Steps go on counting. Costs O(samples) for each size
  /// that the epoch has seen.
  ///
  /// Errors, which leave the sampler as it was: `corrupt_data` for text that is no such state, `unsupported`
  /// for one of a newer version, `mismatch`, saying what differs, for one of another sampler.
  void restore(std::string_view state);

 private:
  struct GlobalBatch {
    std::size_t begin;  // in order_
    std::size_t count;
  };

  /// Batches taken with one global batch size.
  struct Segment {
    std::size_t global_batch;
    std::size_t taken;
  };

  void check() const;
  void number_buckets();
  void group_by_bucket();
  void cut_epoch(std::size_t global_batch);
  void cut_rest(const Segment& done, std::size_t global_batch);
  void sort_by_length();
  [[nodiscard]] bool build_epoch();

  int rank_;
  int ranks_;
  std::size_t size_;
  ShardedSamplerOptions options_;
  std::size_t steps_per_epoch_ = 0;
  std::size_t global_batch_size_ = 0;
  std::uint64_t groups_hash_ = 0;  // of buckets and lengths
  std::uint64_t step_ = 0;
  std::uint64_t epoch_ = 0;
  std::vector<Segment> segments_;           // of the epoch; the last has this sampler's global batch
  bool built_ = false;                      // order_ and batches_ are the epoch's
  std::vector<std::size_t> order_;          // samples, bucket after bucket
  std::vector<std::size_t> bucket_begins_;  // positions in order_, and its size
  std::vector<std::size_t> bucket_fill_;    // working memory
  std::vector<GlobalBatch> batches_;        // of the last segment, step after step
};

}  // namespace ddl
