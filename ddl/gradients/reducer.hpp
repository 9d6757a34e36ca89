#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/timeline/run_statistics.hpp"
#include "collectives/watch/watch.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/error.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/buckets.hpp"
#include "ddl/gradients/gradient_queue.hpp"
#include "ddl/gradients/step_dump.hpp"
#include "ddl/gradients/step_ledger.hpp"
#include "ddl/parameters/parameters.hpp"
#include "ddl/timeline.hpp"
#include "ddl/timeline/run_observer.hpp"

namespace ddl {

/// DDL_CHECK=1: finds misuse of gradients' memory. Each check reads the gradient once, and returns the text
/// of an error or nothing.
class GradientCheck {
 public:
  /// For gradients in the host's memory, which must outlive this object.
  explicit GradientCheck(std::span<const Gradient> gradients)
      : gradients_(gradients), seen_(gradients.size()) {}

  /// Finds memory that has been freed or that still holds the last step's result, because the trainer writes
  /// elsewhere.
  std::optional<std::string> at_ready(std::size_t index) {
    const std::span<const std::byte> values = gradients_[index].values.bytes();
    if (!is_mapped(values)) return "its memory is gone: expected it to stay while the reducer lives";
    for (const Elements& summand : gradients_[index].summands) {
      if (!is_mapped(summand.bytes())) {
        return "the memory of a summand is gone: expected it to stay while the reducer lives";
      }
    }
    const Seen& seen = seen_[index];
    if (!seen.has_step || hash_of(values) != seen.after_step) return {};
    return "it holds just what the last step left there: has its vector moved, so that backward writes "
           "elsewhere?";
  }

  /// Remembers a piece of a gradient that is ready, after its summands were added. Pieces of a gradient are
  /// reduced, and change, one by one.
  void remember(const GradientPiece& piece) { at_ready_[key_of(piece)] = hash_of(bytes_of(piece)); }

  /// Finds a piece that has been written to since `remember`.
  [[nodiscard]] std::optional<std::string> before_reduction(const GradientPiece& piece) const {
    const auto known = at_ready_.find(key_of(piece));
    if (known == at_ready_.end() || known->second == hash_of(bytes_of(piece))) return {};
    return "it was written to after it was reported as ready; report it when nothing is added to it any more";
  }

  /// Remembers the step's results.
  void after_step() {
    at_ready_.clear();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::span<const std::byte> values = gradients_[i].values.bytes();
      seen_[i].has_step = std::ranges::any_of(values, [](std::byte value) { return value != std::byte{0}; });
      seen_[i].after_step = hash_of(values);
    }
  }

 private:
  static bool is_mapped(std::span<const std::byte> values) {
    if (values.empty()) return true;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(values.data()) / page * page;
    const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(values.data() + values.size());
    std::vector<unsigned char> pages((end - begin + page - 1) / page);
    return mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) == 0;
  }

  using Key = std::pair<std::size_t, std::size_t>;  // the gradient and the piece's first element
  static Key key_of(const GradientPiece& piece) { return {piece.gradient, piece.first}; }
  [[nodiscard]] std::span<const std::byte> bytes_of(const GradientPiece& piece) const {
    return gradients_[piece.gradient].values.subspan(piece.first, piece.count).bytes();
  }

  struct Seen {
    std::uint64_t after_step = 0;
    bool has_step = false;  // `after_step` is valid, and the result was not all zeros
  };

  std::span<const Gradient> gradients_;
  std::vector<Seen> seen_;
  std::map<Key, std::uint64_t> at_ready_;
};

/// Reports a reducer's steps to the timeline, the run's statistics and `-dump_iter`. Costs next to nothing if
/// none of these is on. Used by one thread at a time.
class StepObserver {
 public:
  explicit StepObserver(const Context& context) : timeline_(context.timeline()), run_(observer_of(context)) {
    if (const int every = context.options().dump_iterations; every > 0 && run_ != nullptr) {
      dump_.emplace(context, *run_, every);
    }
  }

  /// The step's first report or its weight has arrived; later calls in the step do nothing.
  void begin() {
    if (run_ != nullptr && !at_begin_) at_begin_ = shares();
  }
  void ready(const std::string& gradient, bool has_value) {
    if (timeline_.is_on()) timeline_.instant(track, (has_value ? "ready: " : "absent: ") + gradient);
  }
  /// Whether `queued` uses the names of buckets, which are costly to make.
  [[nodiscard]] bool wants_buckets() const noexcept { return timeline_.is_on() || dump_; }
  void queued(const std::string& bucket, std::uint64_t bytes) {
    if (dump_) dump_->arrived();
    timeline_.instant(track, "queue " + bucket, {{"bytes", static_cast<std::int64_t>(bytes)}});
  }
  [[nodiscard]] Timeline::Scope waiting() { return timeline_.scope("wait for gradients"); }
  /// All buckets are reduced.
  void reduced() {
    if (run_ == nullptr || !at_begin_) return;
    const collectives::RunStatistics::Shares now = shares();
    const collectives::RunStatistics::Shares step{now.busy - at_begin_->busy, now.waited - at_begin_->waited};
    run_->recorder()->statistics().gradient_step(step.busy, step.waited);
    if (step.busy > 0) hidden_ = step.hidden();
  }
  /// Of the last step.
  [[nodiscard]] std::optional<double> hidden() const noexcept { return hidden_; }
  /// The step is over on all ranks. Collective.
  void step_over() {
    if (dump_) dump_->step_over();
  }
  /// The step is over on this rank, also after an error.
  void end() noexcept { at_begin_.reset(); }

 private:
  static constexpr const char* track = "gradients";

  [[nodiscard]] collectives::RunStatistics::Shares shares() const {
    return run_->recorder()->statistics().all();
  }

  Timeline& timeline_;
  RunObserver* run_;  // may be null
  std::optional<StepDump> dump_;
  std::optional<collectives::RunStatistics::Shares> at_begin_;
  std::optional<double> hidden_;
};

/// How messages name a reducer's functions and gradients: as the caller does, in C++ or in C.
struct CallerNames {
  std::string prefix = {};                ///< Of functions.
  std::string given = {};                 ///< The argument of `wait` for a weight that `begin` got.
  std::vector<std::size_t> numbers = {};  ///< The caller's number of each gradient; empty: its index.

  /// "ready(3)".
  [[nodiscard]] std::string call(std::string_view function, std::string_view argument = {}) const {
    return fmt::format("{}{}({})", prefix, function, argument);
  }
  /// Begins a message about `call`; in C the function's name does already.
  [[nodiscard]] std::string lead(std::string_view call) const {
    return prefix.empty() ? fmt::format("{}: ", call) : std::string();
  }
  [[nodiscard]] std::size_t number(std::size_t gradient) const {
    return gradient < numbers.size() ? numbers[gradient] : gradient;
  }
};

/// A weight that ends a step: a number, or none if `begin` got it.
struct GivenWeight {
  double number = 0;
  bool is_given = false;
  const double* on_device = nullptr;  ///< Instead of `number`.

  GivenWeight() = default;
  explicit GivenWeight(double weight) : number(weight), is_given(true) {}
  explicit GivenWeight(const DeviceWeight& weight) : is_given(true), on_device(weight.items) {}
};

/// The implementation of `GradientReducer` for hosts and devices: checks, agreement between ranks, the layout
/// of buckets and the order of a step. The queue reduces the buckets.
struct GradientReducer::State {
  State(const Context& context, std::vector<Gradient> gradients, GradientReducerOptions options,
        std::unique_ptr<GradientQueue> queue);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Waits for reductions in flight, because their memory is freed.
  ~State();

  /// Begins messages of C++ programs.
  static constexpr std::string_view prefix = "GradientReducer: ";

  template <typename... Parts>
  static Error invalid(fmt::format_string<Parts...> message, Parts&&... parts) {
    return {ErrorCode::invalid_argument,
            std::string(prefix) + fmt::format(message, std::forward<Parts>(parts)...)};
  }
  [[nodiscard]] bool is_mean() const noexcept { return options.gradients == GradientKind::mean; }
  void require_index(const char* name, std::size_t index) const;
  /// `name`: the caller's name, for messages.
  void require_device(const char* name) const;

  void begin(double weight);
  /// Lets the step's `wait` end with `error` on all ranks, for a caller that ignores errors of other
  /// functions.
  void fail(const Error& error);
  /// Whether a step has begun that `wait` has not ended.
  [[nodiscard]] bool is_in_step();
  /// `rows`: the touched rows; none given: all rows.
  void report(const char* name, std::size_t index, bool has_value,
              std::optional<std::span<const std::int32_t>> rows, DeviceStream stream);
  /// Ends a step or a micro-batch. On hosts it returns the result; on devices it queues the work.
  ReducedStep end(const char* name, const GivenWeight& given, DeviceStream stream);
  ReducedStep wait(const GivenWeight& weight);
  ReducedStep result();
  ReducedStep result(DeviceStream stream);

  [[nodiscard]] bool can_be_captured() const;

  [[nodiscard]] bool has_gradient(std::size_t index);
  void rebind(std::vector<Gradient> moved);
  void gather(const std::vector<Parameter>& parameters, DeviceStream stream);
  [[nodiscard]] std::string state() const;
  void restore(std::string_view json);
  [[nodiscard]] std::size_t largest_bucket() const noexcept;
  [[nodiscard]] std::optional<double> hidden_share() const noexcept { return observer_.hidden(); }

  struct Bucket {
    BucketLayout layout;
    std::size_t gradients = 0;  // number of gradients with a piece in it
    std::size_t missing = 0;    // number of these that are not reported in this step yet
  };

  // Kept between steps.
  Context context;
  std::vector<Gradient> gradients;
  GradientReducerOptions options;
  std::vector<TouchedRows> touched;  // for each gradient
  std::unique_ptr<GradientQueue> queue;
  LearnedBuckets learned;
  std::vector<Bucket> buckets;
  std::vector<GradientPiece> shards;
  std::size_t bytes = 0;
  bool no_sync = false;
  CallerNames names;

 private:
  void check(const std::vector<Gradient>& given) const;
  void check(const Gradient& gradient) const;
  void check_options() const;
  void watch_memory();
  [[nodiscard]] bool has_begun() const noexcept {
    return begun_ || micro_batches_ > 0 || !ledger_.is_empty();
  }
  /// "gradient 3 ('w')".
  [[nodiscard]] std::string described(std::size_t gradient) const;
  void throw_if(std::size_t gradient, const std::optional<std::string>& problem) const;
  void remember_pieces(std::size_t gradient);
  std::optional<GradientCheck> memory_check_;
  void agree();
  [[nodiscard]] bool is_learned() const noexcept { return !learned.order.empty(); }
  [[nodiscard]] std::vector<BucketLayout> layouts() const;
  void make_buckets();
  [[nodiscard]] std::vector<GradientPiece> own_shards() const;
  [[nodiscard]] std::string name_of(std::size_t bucket) const;

  void require_rows(std::size_t index, std::span<const std::int32_t> rows) const;
  void follow(DeviceStream stream);
  void start_complete();
  void start(std::size_t bucket);
  void name_what_is_missing(std::size_t reported);
  void wait_for_other_threads(std::unique_lock<std::mutex>& lock);
  void end_micro_batch(const char* name, DeviceStream stream);
  void reduce_rest(const char* name, const double* weight_on_device);
  ReducedStep agree_on_step();
  [[nodiscard]] Error with_bucket(const Error& error);
  [[nodiscard]] std::optional<Error> wrong_pairing(const char* name, bool gives_weight) const;
  [[nodiscard]] std::optional<Error> weight_problem() const;
  [[nodiscard]] std::optional<Error> problem(const char* name) const;
  [[nodiscard]] Error total_problem(double total) const;
  [[nodiscard]] bool is_alone() const noexcept;
  [[nodiscard]] double own_weight() const noexcept { return is_alone() && weight_ > 0 ? 1 : weight_; }
  void warn_of_no_values();
  void log_buckets() const;
  void start_weight(bool blocking);
  void require_good_total();
  void throw_agreed(const std::optional<Error>& mine);
  ReducedStep fetched();
  void learn();
  void end_step() noexcept;

  StepObserver observer_;
  std::vector<std::vector<std::size_t>> buckets_of_;  // for each gradient, the buckets that hold it
  bool overlaps_ = false;                             // buckets are reduced during backward

  // The current step.
  std::mutex mutex_;  // held by all reports and waits, except while a wait waits for reports
  StepLedger ledger_;
  std::size_t started_ = 0;   // number of buckets whose reduction has started
  std::size_t finished_ = 0;  // number of buckets that have been unpacked
  bool begun_ = false;
  double weight_ = 0;              // of this micro-batch
  double weight_before_ = 0;       // sum over the earlier micro-batches
  std::size_t micro_batches_ = 0;  // number of earlier micro-batches
  bool has_started_weight_ = false;
  bool has_followed_ = false;  // a call had a stream
  bool is_captured_ = false;   // calls become part of a graph
  std::optional<Error> kept_problem_;
  bool has_warned_of_no_values_ = false;

  // The last step.
  std::vector<std::uint8_t> values_somewhere_;  // for each gradient: whether a rank had a value
  bool values_are_own_ = false;                 // `values_somewhere_` covers only this rank
  std::uint64_t bytes_of_step_ = 0;
  bool has_result_ = false;    // `result` has not been called yet
  bool has_captured_ = false;  // a step has become part of a graph

  std::condition_variable complete_;
  std::thread::id waiter_;     // the thread of the last wait
  bool other_thread_ = false;  // another thread has reported gradients, in this step or an earlier one
  const int exceptions_at_start_;
  collectives::Watch* watch_;                // null if there is no exit report
  std::optional<std::string> scope_before_;  // the watch's scope before this step set its own
  std::size_t named_gradient_ = 0;           // the missing gradient in this step's scope
};

/// The library's own access to the state of a reducer.
struct ReducerAccess {
  static constexpr std::string_view prefix = GradientReducer::State::prefix;
  static GradientReducer::State& state(GradientReducer& reducer) noexcept { return *reducer.state_; }
};

}  // namespace ddl
