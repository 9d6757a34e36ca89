#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/watch/watch.hpp"
#include "ddl/error.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/bucket_set.hpp"
#include "ddl/gradients/gradient_norm.hpp"
#include "ddl/gradients/gradient_watch.hpp"
#include "ddl/gradients/learned_buckets.hpp"
#include "ddl/gradients/step_ledger.hpp"
#include "ddl/work.hpp"

namespace ddl {

/// What stands behind a `GradientReducer`.
struct GradientReducer::State {
  State(Context& context, std::vector<Gradient> gradients, GradientReducerOptions options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Waits for what was started: its memory is about to go.
  ~State();

  [[nodiscard]] bool is_mean() const noexcept { return options.gradients == GradientKind::mean; }
  void require_index(const char* name, std::size_t index) const;

  void begin(double weight);
  /// `name`: of the call, for messages. `rows`: those that were touched; all, if not given.
  void report(const char* name, std::size_t index, bool has_value,
              std::optional<std::span<const std::int32_t>> rows);
  /// Of a step, or of a micro-batch.
  ReducedStep end(double weight);

  void gather(const std::vector<Parameter>& parameters);
  [[nodiscard]] std::string state() const;
  void restore(std::string_view json);

  static Error invalid(const std::string& message);

  // What stays.
  Context& context;
  std::vector<Gradient> gradients;
  GradientReducerOptions options;
  LearnedBuckets learned;
  std::vector<TouchedRows> touched;  // of each gradient
  GradientWatch watch;
  ReducerWays ways;
  std::optional<BucketSet> buckets;
  std::vector<GradientShard> shards;
  std::size_t bytes = 0;
  std::uint64_t plans_hash = 0;  // of the plans by which the buckets are reduced; the same on all ranks

  // Of a step.
  StepLedger ledger;
  bool begun = false;
  bool no_sync = false;
  double weight = 0;         // of this micro-batch
  double weight_before = 0;  // of those before it
  double total = 0;          // of all ranks: this rank's until weight_sum is done
  Work weight_sum;
  bool has_total = false;         // weight_sum has been started
  std::size_t micro_batches = 0;  // before this one
  std::optional<Error> kept_problem;
  std::vector<float> accumulated;  // weighted means of the micro-batches before
  std::vector<std::uint8_t> values_somewhere;
  GradientNorm norm;

 private:
  void agree();
  [[nodiscard]] bool is_busy() noexcept;
  void drain() noexcept;
  void open_ways();

  [[nodiscard]] bool is_learned() const noexcept { return !learned.order.empty(); }
  [[nodiscard]] DataType wire() const noexcept;
  [[nodiscard]] std::size_t multiple() const;
  [[nodiscard]] std::vector<std::size_t> order_of_layout() const;
  void order_by_readiness(std::vector<BucketLayout>& layouts) const;
  void make_buckets();
  [[nodiscard]] std::uint64_t agreed_plans_hash();

  void name_what_is_missing(std::size_t reported);
  void require_rows(std::size_t index, std::span<const std::int32_t> rows) const;
  void fill(const GradientPiece& piece, std::span<float> target) const;
  void scale_in_place(std::size_t gradient, std::span<float> values) const;
  [[nodiscard]] BucketSet::Fill filler();
  [[nodiscard]] std::span<float> accumulated_of(std::size_t gradient);
  [[nodiscard]] std::span<const float> accumulated_of(const GradientPiece& piece) const;

  void wait_for_other_threads(std::unique_lock<std::mutex>& lock);
  ReducedStep end_micro_batch();
  ReducedStep reduce();
  [[nodiscard]] Error with_bucket(const Error& error);
  [[nodiscard]] std::optional<Error> weight_problem() const;
  [[nodiscard]] std::optional<Error> problem() const;
  void set_own_weight();
  void start_weight();
  [[nodiscard]] bool is_good_total() const noexcept;
  [[nodiscard]] double factor() const noexcept;
  void require_good_total();
  void throw_agreed(const std::optional<Error>& mine);
  void agree_on_values(bool some_are_missing);
  void learn();
  void end_step() noexcept;

  std::mutex mutex_;  // held for all that reports and waits do, but for waiting for reports
  std::condition_variable complete_;
  std::thread::id waiter_;     // of the last wait
  bool other_thread_ = false;  // has reported gradients of this step, or of an earlier one
  const int exceptions_at_start_;
  collectives::Watch* watch_;                // null: nobody wants to know
  std::optional<std::string> scope_before_;  // once this step has one of its own
  std::size_t named_gradient_ = 0;           // in it
};

}  // namespace ddl
