#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/sharded_sampler.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// The batches of training, in one phase or two: with --phase1_steps, the first steps take short pairs alone,
/// in batches of their own size, and those after them take all pairs from the start of an epoch. Which phase
/// a step is in depends on its number alone.
class Phases {
 public:
  /// Collective; errors are agreed: those of `ddl::ShardedSampler`, and `invalid_argument` if fewer pairs are
  /// short enough for phase 1 than there are ranks.
  Phases(ddl::Context& context, const Options& options, const Dataset& dataset);

  /// This rank's share of the step after `done` others: numbers of the dataset's samples, and a step that no
  /// other phase has.
  void next(std::uint64_t done, ddl::ShardedBatch& share);
  /// Which batches are left after `done` steps; the same on all ranks.
  [[nodiscard]] std::string state(std::uint64_t done) const {
    return phases_[index_of(done)].sampler.state();
  }
  /// Errors as `ddl::ShardedSampler::restore`.
  void restore(std::uint64_t done, std::string_view state);

  /// 1 or 2; 0 if there is only one phase.
  [[nodiscard]] int number(std::uint64_t done) const noexcept {
    return phases_.size() == 1 ? 0 : static_cast<int>(index_of(done)) + 1;
  }
  /// For people: a line about phase 1; empty without one.
  [[nodiscard]] std::string description() const;
  /// Of the last phase.
  [[nodiscard]] std::size_t steps_per_epoch() const noexcept {
    return phases_.back().sampler.steps_per_epoch();
  }

 private:
  struct Phase {
    std::uint64_t first_step;
    std::vector<std::size_t> samples;  // of the dataset; empty: all
    ddl::ShardedSampler sampler;
    std::string fresh;  // the sampler's first state
  };

  void add(const ddl::Context& context, const Options& options, const Dataset& dataset,
           std::uint64_t first_step, std::vector<std::size_t> samples, int batch_size, int batch_words);
  [[nodiscard]] std::size_t index_of(std::uint64_t done) const noexcept {
    return phases_.size() > 1 && done >= phases_[1].first_step ? 1 : 0;
  }

  std::vector<Phase> phases_;
  int longest_in_phase1_;
};

/// The steps of an epoch over all pairs. Errors as `ddl::ShardedSampler`.
std::uint64_t steps_per_epoch(const ddl::Context& context, const Options& options, const Dataset& dataset);

/// The largest batches that a rank computes at a time, of all phases and groups of like length: within one of
/// these is each batch (or micro-batch). The one with the most sentences comes first.
std::vector<BatchLimits> batch_limits(const Options& options, const Dataset& dataset);

}  // namespace nmt
