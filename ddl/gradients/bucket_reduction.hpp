#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/gradients/gradient_norm.hpp"
#include "ddl/work.hpp"

namespace ddl {

/// Wakes who waits for any of several works. Continuations hold it, so it may be gone for all others.
class WorkEvents {
 public:
  void signal();
  /// How many there have been; to be read before one looks whether anything is done.
  [[nodiscard]] std::uint64_t seen();
  /// Returns once there have been more than `seen`.
  void wait_beyond(std::uint64_t seen);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
};

/// Sees to it that reductions of one kind enter each of their stages in one order on all ranks, whichever is
/// done first: a communicator's calls must come in one order.
class StageOrder {
 public:
  static constexpr std::size_t most_stages = 4;

  void clear() noexcept { next_.fill(0); }
  /// Whether it is the turn of number `ordinal`.
  [[nodiscard]] bool is_turn(std::size_t stage, std::size_t ordinal) const noexcept {
    return next_[stage] == ordinal;
  }
  void entered(std::size_t stage) noexcept { ++next_[stage]; }

 private:
  std::array<std::size_t, most_stages> next_{};
};

/// How the values of one bucket become sums over all ranks. Used step after step: `start`, then `advance`
/// until it says that all is done, then `finish`. All ranks start their buckets in one order. Not
/// thread-safe.
class BucketReduction {
 public:
  BucketReduction() = default;
  BucketReduction(const BucketReduction&) = delete;
  BucketReduction& operator=(const BucketReduction&) = delete;
  virtual ~BucketReduction() = default;

  /// This rank's values are there.
  virtual void start() = 0;
  /// Goes on to what can be done now; true once this rank's part is over. Does not block. Throws `Error`.
  [[nodiscard]] virtual bool advance() = 0;
  /// Blocks until what is under way is done; that need not be all.
  virtual void wait() = 0;
  /// Adds the sums that count as this rank's to the norm; then multiplies all with `factor`, unless it is 1.
  virtual void finish(double factor, GradientNorm& norm) = 0;
  /// Once all ranks know whether the step's gradients are finite.
  virtual void settle(bool /*finite*/) {}
  /// Bytes that were reduced or gathered in this step.
  [[nodiscard]] virtual std::uint64_t bytes() const noexcept = 0;
  /// The hashes of the plans that decide in which order this rank's groups add, as text.
  [[nodiscard]] virtual std::string plans() const = 0;
};

/// The hash of the plan for `count` values, as text; empty for one rank alone.
std::string plan_text(const Communicator& communicator, topology::Collective collective, std::size_t count,
                      DataType type);

/// Rank's slice of `values`, of `ranks`: all slices together are the whole.
std::span<float> slice_of(std::span<float> values, int rank, int ranks) noexcept;

/// `BucketReduction::finish` of values that are all there, of which the rank's slice counts as its own.
void finish_slice(std::span<float> values, int rank, int ranks, double factor, GradientNorm& norm) noexcept;

/// One all-reduce; every rank ends with all sums. `blocking`: in the caller's thread, in `start`.
std::unique_ptr<BucketReduction> dense_reduction(Communicator& all, std::span<float> values, bool blocking,
                                                 std::shared_ptr<WorkEvents> events);
/// A reduce-scatter; each rank ends with its slice, which must be a whole number of elements.
std::unique_ptr<BucketReduction> sharded_reduction(Communicator& all, std::span<float> values,
                                                   std::shared_ptr<WorkEvents> events);

}  // namespace ddl
