#pragma once

#include <memory>
#include <span>

#include "ddl/gradients/bucket_reduction.hpp"
#include "ddl/gradients/host_hierarchy.hpp"

namespace ddl {

/// What 16 bits could not say of a rank's shard of a bucket, for the next step to send.
class WireResidual {
 public:
  explicit WireResidual(std::size_t count) : kept_(count), next_(count) {}

  [[nodiscard]] std::span<float> kept() noexcept { return kept_; }
  [[nodiscard]] std::span<float> next() noexcept { return next_; }
  /// The next one counts, or the step is as if it had not been.
  void settle(bool counts) noexcept {
    if (counts) kept_.swap(next_);
  }

 private:
  std::vector<float> kept_;
  std::vector<float> next_;
};

/// Sums within each host in f32, between hosts in 16 bits, with error feedback on the shard (Seide et al.
/// 2014; Karimireddy et al. 2019): what a step's rounding leaves is added to what the next one sends. The
/// number of values is a multiple of the hierarchy's shards.
std::unique_ptr<BucketReduction> wire_reduction(Communicator& all, HostHierarchy& hierarchy, DataType wire,
                                                std::span<float> values, WireResidual& residual,
                                                StageOrder& order, std::size_t ordinal,
                                                std::shared_ptr<WorkEvents> events);

}  // namespace ddl
