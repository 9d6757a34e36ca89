#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/bucket_layout.hpp"
#include "ddl/gradients/bucket_reduction.hpp"
#include "ddl/gradients/gradient_watch.hpp"
#include "ddl/gradients/host_hierarchy.hpp"
#include "ddl/gradients/rows_reduction.hpp"
#include "ddl/gradients/wire_reduction.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {

/// Communicators of a reducer's own, where it needs any.
struct ReducerWays {
  std::optional<Communicator> rows;
  std::optional<HostHierarchy> hierarchy;
};

/// The pieces' memory if they lie one after the other in it, else nothing.
std::span<float> one_run(std::span<const std::span<float>> pieces);

/// The buckets of a reducer: their memory, and how far each is in this step. They are started in their order,
/// the same on all ranks. Not thread-safe.
class BucketSet {
 public:
  struct Settings {
    std::span<const Gradient> gradients;
    std::span<TouchedRows> touched;  ///< Of each gradient.
    DataType wire = DataType::f32;
    bool sharded = false;
  };
  /// Writes this rank's part of a piece to `target`, which may be the gradient's own memory.
  using Fill = std::function<void(const GradientPiece& piece, std::span<float> target)>;

  BucketSet(Context& context, ReducerWays& ways, GradientWatch& watch, Settings settings,
            std::vector<BucketLayout> layouts);

  [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
  [[nodiscard]] std::size_t largest() const noexcept;
  [[nodiscard]] std::span<float> gradient(const GradientPiece& piece) const;
  [[nodiscard]] const BucketLayout& layout(std::size_t bucket) const { return buckets_[bucket].layout; }
  /// The first that was not started; `size()` if there is none.
  [[nodiscard]] std::size_t next() const noexcept { return started_; }
  /// "bucket 3 of 20 (gradients 'a' to 'f')"
  [[nodiscard]] std::string name(std::size_t bucket) const;

  /// A gradient was reported.
  void report(std::size_t gradient) noexcept;
  /// Starts those that are complete, as far as the order allows; moves the others on.
  void start_complete(const Fill& fill);
  /// Starts the rest.
  void start_all(const Fill& fill);
  /// Of those whose sums are there: multiplies them with `factor` and puts them where the gradients are. Does
  /// not block.
  void finish_done(double factor, GradientNorm& norm);
  /// The same of all, for which it waits.
  void finish_all(double factor, GradientNorm& norm);
  /// Waits for one that was started.
  void wait_for(std::size_t bucket);
  /// Waits for those that were started; their values do not count.
  void drain();
  /// Whether one that was started is not over, or has failed.
  [[nodiscard]] std::optional<std::size_t> unfinished() noexcept;
  void settle(bool finite);
  void next_step() noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  /// Of each bucket's reduction.
  [[nodiscard]] std::vector<std::string> plans() const;

  /// What this rank is to update after a sharded reduction.
  [[nodiscard]] std::vector<GradientShard> shards() const;
  /// Gives all ranks one another's shards of values that are laid out as the gradients are.
  void gather(std::span<const Parameter> parameters);

  [[nodiscard]] std::vector<NamedTensor> residuals();

 private:
  struct Bucket {
    BucketLayout layout;
    std::span<float> values;         // what is reduced: the gradients themselves, or `packed`
    SharedBuffer<float> packed;      // empty if the gradients lie one after the other
    SharedBuffer<float> parameters;  // for `gather`, where they do not lie as the gradients do
    std::size_t gradients = 0;       // that have a piece in it
    std::size_t missing = 0;         // of them in this step
    std::unique_ptr<WireResidual> residual = nullptr;
    std::unique_ptr<BucketReduction> reduction = nullptr;
  };

  void place(Bucket& bucket) const;
  void choose_reduction(Bucket& bucket);
  void start(std::size_t index, const Fill& fill);
  void finish(const Bucket& bucket, double factor, GradientNorm& norm) const;
  void unpack(const Bucket& bucket, double factor) const;
  void advance(std::size_t first);
  [[nodiscard]] std::size_t shard_count(const BucketLayout& layout) const;
  [[nodiscard]] Work gather_in_place(std::span<float> values) const;

  Context& context_;
  ReducerWays& ways_;
  GradientWatch& watch_;
  Settings settings_;
  std::shared_ptr<WorkEvents> events_;  // null: no reduction has several stages
  StageOrder wire_order_, rows_order_;
  std::size_t wire_buckets_ = 0;
  std::size_t rows_buckets_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> buckets_of_;  // of each gradient
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace ddl
