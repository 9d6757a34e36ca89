#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {

/// One parameter's gradient on this rank: `values` must stay where it is while the reducer lives.
struct Gradient {
  std::string name;
  std::span<float> values;
};

/// What the trainer's backward pass leaves in the gradients.
enum class GradientKind {
  sum,   ///< Sums over this rank's items; the weight (number of items) is given to `wait`.
  mean,  ///< Means over this rank's items; the weight is given to `begin`, before backward.
};

struct GradientReducerOptions {
  GradientKind gradients;  ///< No default: a wrong guess here is a wrong model.
  /// Gradients are reduced in buckets of about this many bytes. Same on all ranks.
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// Replaces each rank's gradients by their weighted mean over all ranks:
/// sum_r(w_r * mean_r) / sum_r(w_r) = sum_r(sum_r) / sum_r(w_r), so ragged batches (ranks with
/// other numbers of target tokens, even none) weigh what they hold.
///
/// Per step: [`begin(weight)` for means], `ready(i)` once for each gradient, in any order, as soon as
/// backward has finished it, then `wait`. All ranks end with the same bits. A rank without items takes
/// part with weight 0: its means are ignored (they may be NaN), its sums must be 0.
///
/// Gradients are put into buckets in reverse order of registration, which is about the order in which
/// backward finishes them. The bucket layout depends only on the names, sizes and `bucket_bytes`; a
/// gradient larger than that is a bucket of its own. A bucket whose gradients lie one after the other
/// in memory, in order of registration, is reduced in place; any other is packed into memory of the
/// reducer's own. So one flat buffer, registered front to back, costs neither copies nor memory; from
/// `allocate`, the ranks of a host reduce it where it is.
/// Cost: one all-reduce per bucket, one of a single double, and one pass over the gradients (two for
/// means). A step of one bucket allocates nothing, else some small blocks for each bucket.
///
/// `context` must stay where it is while the reducer lives. Not thread-safe. Errors:
/// - construction is collective; `mismatch` if ranks registered other gradients or options (names the
///   first difference and its ranks), `invalid_argument` for gradients that overlap or empty buckets;
/// - `invalid_argument`, on the calling rank, for a wrong pairing of `begin`/`ready`/`wait`, an unknown
///   index or a gradient made ready twice;
/// - `invalid_argument` from `wait`, the same on every rank, for a negative or non-finite weight or a
///   gradient not made ready on any of them, or a total weight of 0. The step is over then, its
///   gradients undefined; the next one can begin.
class GradientReducer {
 public:
  GradientReducer(Context& context, std::vector<Gradient> gradients, GradientReducerOptions options);
  ~GradientReducer();
  GradientReducer(GradientReducer&&) noexcept;
  GradientReducer& operator=(GradientReducer&&) noexcept;

  /// Starts a step of gradient means over `weight` items. Only with `GradientKind::mean`.
  void begin(double weight);
  /// Gradient `index` (order of registration) is final on this rank for this step.
  void ready(std::size_t index);
  /// Ends a step of gradient sums over `weight` items; returns the total weight over all ranks.
  double wait(double weight);
  /// Ends a step of gradient means; returns the total weight over all ranks.
  double wait();

  /// Bytes reduced per step.
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t buckets() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl
