#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

/// Samples of one bucket.
struct LengthGroup {
  std::size_t samples = 0;
  std::size_t longest_source = 0, longest_target = 0;  ///< In tokens.
  std::size_t longest = 0;                             ///< Of both sides together.
};

/// What was found when a text was encoded. Plain bytes, as in a data set's file.
struct DatasetFacts {
  std::uint64_t pairs = 0;                               ///< That are samples.
  std::uint64_t empty_source = 0, empty_target = 0;      ///< Dropped pairs: the source (or both), the target.
  std::uint64_t cut = 0;                                 ///< Pairs of which a side was cut to the maximum.
  std::uint64_t source_tokens = 0, target_tokens = 0;    ///< Of the samples.
  std::uint64_t unknown_source = 0, unknown_target = 0;  ///< Of them, <unk>.
  std::uint64_t longest_source = 0, longest_target = 0;  ///< In tokens, of the samples.
  std::uint64_t max_len = 0;                             ///< The larger of the maxima; 0: none.
  std::uint64_t hash = 0;                                ///< Of all tokens.

  /// The pairs whose sides differ most in length, the worst first; without words: there are fewer pairs.
  struct Lengths {
    std::uint64_t line = 0;  ///< From 1.
    std::uint32_t source = 0, target = 0;
    [[nodiscard]] double ratio() const noexcept;
  };
  std::array<Lengths, 10> uneven = {};
};

/// Sentence pairs as ids, without <s> and </s>. Sample i is the i-th pair that was not dropped.
/// Memory: 4 bytes a token and 16 a pair; a file's is shared by the ranks of a host, and not all of it need
/// be in memory at a time. Cheap to copy.
class Dataset {
 public:
  /// `ids`: the samples' source and target, one after the other; `ends` [2 pairs]: where each of these ends.
  /// Both are in `memory`.
  Dataset(std::shared_ptr<const void> memory, std::span<const std::int32_t> ids,
          std::span<const std::uint64_t> ends, const DatasetFacts& facts)
      : memory_(std::move(memory)), ids_(ids), ends_(ends), facts_(facts) {}

  [[nodiscard]] std::size_t size() const noexcept { return ends_.size() / 2; }
  [[nodiscard]] std::span<const std::int32_t> source(std::size_t sample) const noexcept {
    return side(2 * sample);
  }
  [[nodiscard]] std::span<const std::int32_t> target(std::size_t sample) const noexcept {
    return side(2 * sample + 1);
  }
  [[nodiscard]] const DatasetFacts& facts() const noexcept { return facts_; }
  /// Tokens of both sides.
  [[nodiscard]] std::size_t tokens() const noexcept { return ids_.size(); }
  [[nodiscard]] std::size_t longest_source() const noexcept { return facts_.longest_source; }
  [[nodiscard]] std::size_t longest_target() const noexcept { return facts_.longest_target; }

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
  [[nodiscard]] std::span<const std::int32_t> side(std::size_t index) const noexcept {
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return ids_.subspan(begin, ends_[index] - begin);
  }

  std::shared_ptr<const void> memory_;
  std::span<const std::int32_t> ids_;
  std::span<const std::uint64_t> ends_;
  DatasetFacts facts_;
};

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

/// Appends padding up to these numbers of steps, which are not below the batch's own.
void pad_batch(Batch& batch, std::size_t source_steps, std::size_t target_steps);

class SentenceNoise;

/// Fills `batch` with the samples, in their order. Allocates only if the batch outgrows its capacity. With
/// `noise`, the sentences are changed as it does in this step.
void fill_batch(const Dataset& dataset, std::span<const std::size_t> samples, Batch& batch,
                SentenceNoise* noise = nullptr, std::uint64_t step = 0);

}  // namespace nmt
