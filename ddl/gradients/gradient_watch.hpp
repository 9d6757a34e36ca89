#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/timeline/run_statistics.hpp"
#include "ddl/context.hpp"
#include "ddl/gradients/step_dump.hpp"
#include "ddl/timeline.hpp"
#include "ddl/timeline/run_observer.hpp"

namespace ddl {

/// What a reducer tells of its steps: events on the timeline, and figures. Does next to nothing where nobody
/// wants to know. Used by one thread at a time.
class GradientWatch {
 public:
  explicit GradientWatch(Context& context);

  /// Whether names of gradients and buckets are wanted.
  [[nodiscard]] bool wants_events() const noexcept { return timeline_.is_on(); }
  [[nodiscard]] bool wants_buckets() const noexcept { return wants_events() || dump_; }

  /// A step's first gradient, or its weight, is there; later calls in the step do nothing.
  void begin() {
    if (observer_ != nullptr && !at_begin_) at_begin_ = shares();
  }
  void ready(const std::string& gradient, bool has_value);
  void queued(const std::string& bucket, std::uint64_t bytes);
  /// Of what is not waited for by a `Work`.
  [[nodiscard]] collectives::CountedWait counted_wait() const {
    return collectives::CountedWait(observer_ == nullptr ? nullptr : observer_->recorder().get());
  }
  [[nodiscard]] Timeline::Scope waiting() { return timeline_.scope("wait for gradients"); }
  /// All sums are there.
  void reduced();
  /// On all ranks. Collective.
  void step_over() {
    if (dump_) dump_->step_over();
  }
  /// Whatever became of it.
  void end() noexcept { at_begin_.reset(); }

 private:
  [[nodiscard]] collectives::RunStatistics::Shares shares() const;

  Timeline& timeline_;
  RunObserver* observer_;  // may be null
  std::optional<StepDump> dump_;
  std::optional<collectives::RunStatistics::Shares> at_begin_;
};

}  // namespace ddl
