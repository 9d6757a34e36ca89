#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

/// Samples of one bucket.
struct LengthGroup {
  std::size_t samples = 0;
  std::size_t longest_source = 0, longest_target = 0;  ///< In tokens.
  std::size_t longest = 0;                             ///< Of both sides together.
};

/// Sentence pairs as ids, without <s> and </s>. Sample i is the i-th pair that was not dropped.
/// Memory: 4 bytes a token and 16 a pair.
class Dataset {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return source_ends_.size(); }
  [[nodiscard]] std::span<const std::int32_t> source(std::size_t sample) const noexcept {
    return slice(source_ids_, source_ends_, sample);
  }
  [[nodiscard]] std::span<const std::int32_t> target(std::size_t sample) const noexcept {
    return slice(target_ids_, target_ends_, sample);
  }

  /// Pairs left out because a side was empty, and pairs of which a side was cut to the maximum.
  [[nodiscard]] std::size_t dropped() const noexcept { return dropped_; }
  [[nodiscard]] std::size_t truncated() const noexcept { return truncated_; }
  /// Tokens of both sides.
  [[nodiscard]] std::size_t tokens() const noexcept { return source_ids_.size() + target_ids_.size(); }
  [[nodiscard]] std::size_t longest_source() const noexcept { return longest_source_; }
  [[nodiscard]] std::size_t longest_target() const noexcept { return longest_target_; }

  /// The samples of which no side is longer.
  [[nodiscard]] std::vector<std::size_t> samples_up_to(std::size_t length) const;

  /// The length bucket: min(num_buckets-1, max(source length / w, target length / w)),
  /// w = ceil(max(source_max_len, target_max_len) / num_buckets), or 10 without maximum lengths.
  /// (tensorflow/nmt takes w from source_max_len alone, counts <s>, and has one bucket more.)
  [[nodiscard]] std::uint32_t bucket_of(std::size_t sample, std::size_t num_buckets) const;
  /// The bucket of every sample, for `ddl::ShardedSamplerOptions`.
  [[nodiscard]] std::vector<std::uint32_t> buckets(std::size_t num_buckets) const;
  /// All buckets that have samples, counting those of which no side is longer than `most` tokens.
  [[nodiscard]] std::vector<LengthGroup> groups(std::size_t num_buckets, std::size_t most) const;
  /// Source + target tokens of every sample, for `ddl::ShardedSamplerOptions`.
  [[nodiscard]] std::vector<std::uint32_t> lengths() const;

 private:
  friend Dataset encode(const ParallelText&, const Vocabulary&, const Vocabulary&, std::size_t, std::size_t);
  static std::span<const std::int32_t> slice(const std::vector<std::int32_t>& ids,
                                             const std::vector<std::size_t>& ends,
                                             std::size_t sample) noexcept {
    const std::size_t begin = sample == 0 ? 0 : ends[sample - 1];
    return std::span(ids).subspan(begin, ends[sample] - begin);
  }

  std::vector<std::int32_t> source_ids_, target_ids_;
  std::vector<std::size_t> source_ends_, target_ends_;
  std::size_t max_len_ = 0;
  std::size_t dropped_ = 0;
  std::size_t truncated_ = 0;
  std::size_t longest_source_ = 0;
  std::size_t longest_target_ = 0;
};

/// Encodes text. Pairs with an empty side are dropped; longer sides are cut to the maximum (0: no limit).
/// Throws `invalid_argument` if no pair is left, or with more than 2^31-1 pairs.
Dataset encode(const ParallelText& text, const Vocabulary& source_vocabulary,
               const Vocabulary& target_vocabulary, std::size_t source_max_len, std::size_t target_max_len);

/// One rank's samples of one step, time-major: element [t][b] of an array is at t * size() + b.
struct Batch {
  std::size_t source_steps = 0;              ///< S, the longest source.
  std::size_t target_steps = 0;              ///< T, the longest target plus one.
  std::vector<std::int32_t> source;          ///< [S][B], padded with </s>.
  std::vector<std::int32_t> source_lengths;  ///< [B]
  std::vector<std::int32_t> target_in;       ///< [T][B]: <s> and the target, padded with </s>.
  std::vector<std::int32_t> target_out;      ///< [T][B]: the target and </s>, padded with </s>.
  std::vector<std::int32_t> target_lengths;  ///< [B]: target tokens plus one.
  std::vector<std::int32_t> samples;         ///< [B]: index in the dataset, the same on any number of ranks.
  std::size_t words = 0;                     ///< Source tokens plus `target_tokens`: what words/s counts.
  std::size_t target_tokens = 0;             ///< Sum of target_lengths: the weight of the loss.

  /// B; may be 0.
  [[nodiscard]] std::size_t size() const noexcept { return samples.size(); }
  /// Lets `fill_batch` allocate nothing for batches up to these sizes; lengths in tokens, without </s>.
  void reserve(std::size_t max_size, std::size_t max_source_length, std::size_t max_target_length);
};

class SentenceNoise;

/// Fills `batch` with the samples, in their order. Allocates only if the batch outgrows its capacity. With
/// `noise`, the sentences are changed as it does in this step.
void fill_batch(const Dataset& dataset, std::span<const std::size_t> samples, Batch& batch,
                SentenceNoise* noise = nullptr, std::uint64_t step = 0);

}  // namespace nmt
