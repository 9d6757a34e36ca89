#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddl/gradients/elementwise.hpp"
#include "ddl/gradients/reducer.hpp"
#include "topology/json_text.hpp"

// The reports of a reducer's step, and the buckets that they complete.

namespace ddl {

void GradientReducer::ready(std::size_t index, DeviceStream stream) {
  state_->report("ready", index, true, {}, stream);
}

void GradientReducer::State::require_index(const char* name, std::size_t index) const {
  if (index < gradients.size()) return;
  throw invalid("{}: there are only {} gradients", names.call(name, std::to_string(index)), gradients.size());
}

void GradientReducer::State::require_rows(std::size_t index, std::span<const std::int32_t> rows) const {
  const std::size_t count = touched[index].rows();
  if (gradients[index].row_width == 0) {
    throw invalid("found rows of {}, which was registered without row_width", described(index));
  }
  for (const std::int32_t row : rows) {
    if (row >= 0 && static_cast<std::size_t>(row) < count) continue;
    throw invalid("found row {}; {} has {} rows", row, described(index), count);
  }
}

void GradientReducer::State::throw_if(std::size_t gradient, const std::optional<std::string>& problem) const {
  if (problem) throw invalid("DDL_CHECK: {}: {}", described(gradient), *problem);
}

std::string GradientReducer::State::described(std::size_t gradient) const {
  return fmt::format("gradient {} ('{}')", names.number(gradient), gradients[gradient].name);
}

void GradientReducer::State::remember_pieces(std::size_t gradient) {
  for (const std::size_t bucket : buckets_of_[gradient]) {
    for (const GradientPiece& piece : buckets[bucket].layout.pieces) {
      if (piece.gradient == gradient) memory_check_->remember(piece);
    }
  }
}

void GradientReducer::State::begin(double own_weight) {
  const std::lock_guard lock(mutex_);
  if (begun_) {
    throw invalid("{}found a second call in a step, expected one; end the step between, with {} or {}",
                  names.lead("begin(weight)"), names.call("wait"), names.call("finish"));
  }
  begun_ = true;
  observer_.begin();
  weight_ = own_weight;
  // Sums the weights now, so that buckets can become means during backward.
  if (!no_sync && overlaps_) start_weight(false);
}

void GradientReducer::State::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!kept_problem_) kept_problem_ = error;
}

bool GradientReducer::State::is_in_step() {
  const std::lock_guard lock(mutex_);
  return has_begun();
}

bool GradientReducer::State::can_be_captured() const {
  return queue->is_on_device() && (is_learned() || gradients.empty()) && queue->can_be_captured();
}

/// Lets the queue follow the work on a stream on which gradients are ready or a step ends. All of a step is
/// recorded in one graph, or nothing.
void GradientReducer::State::follow(DeviceStream stream) {
  const bool is_captured = queue->is_captured(stream);
  if (is_captured && !can_be_captured()) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}the stream is being captured, {}", prefix,
                    !is_learned()
                        ? "but the first step waits for the device, to learn in which order gradients "
                          "become ready; take one step without a capture"
                        : "but these gradients cannot be reduced in a graph: expected no gradients "
                          "with rows, and the exchange or NCCL in all plans (DeviceOptions::path); "
                          "capture the work before ready() and after finish(), and call these between "
                          "the graphs"));
  }
  if (is_captured != is_captured_ && has_followed_) {
    throw invalid(
        "the stream is {}being captured, but was {}in this step's earlier calls; expected all of a step in "
        "one "
        "capture, or none of it",
        is_captured ? "" : "not ", is_captured ? "not " : "");
  }
  has_followed_ = true;
  is_captured_ = is_captured;
  queue->ready_on(stream);
}

void GradientReducer::State::report(const char* name, std::size_t index, bool has_value,
                                    std::optional<std::span<const std::int32_t>> rows, DeviceStream stream) {
  require_index(name, index);
  const std::lock_guard lock(mutex_);
  if (is_mean() && !begun_) {
    throw invalid("{} before {}: gradient means need their weight before backward", names.call(name),
                  names.call("begin", "weight"));
  }
  if (rows) require_rows(index, *rows);
  if (has_value) follow(stream);
  if (memory_check_ && has_value && !ledger_.is_reported(index)) {
    throw_if(index, memory_check_->at_ready(index));
  }
  const bool was_complete = ledger_.is_complete();
  if (!ledger_.report(index, has_value)) {
    throw invalid("{}{} was reported before in this step{}", names.lead(fmt::format("{}({})", name, index)),
                  described(index),
                  was_complete
                      ? fmt::format(", and so was every other one: the step has not been ended. Call {} (on "
                                    "devices {}) after backward, in every step",
                                    names.call("wait"), names.call("finish"))
                      : "; report each gradient once a step, when nothing is added to it any more");
  }
  for (const Elements& summand : gradients[index].summands) {
    if (has_value) elementwise::add_scaled(gradients[index].values, summand, 1);
    std::ranges::fill(summand.bytes(), std::byte{0});
  }
  if (memory_check_ && has_value) remember_pieces(index);
  observer_.begin();
  observer_.ready(gradients[index].name, has_value);
  other_thread_ = other_thread_ || std::this_thread::get_id() != waiter_;
  if (has_value && touched[index].rows() > 0) {
    rows ? touched[index].add(*rows) : touched[index].add_all();
  }
  if (!no_sync) {
    for (const std::size_t bucket : buckets_of_[index]) --buckets[bucket].missing;
    if (overlaps_) {
      start_complete();
      name_what_is_missing(index);
    }
  }
  if (ledger_.is_complete()) complete_.notify_all();
}

/// Starts complete buckets, in order, and unpacks buckets that are reduced.
void GradientReducer::State::start_complete() {
  while (started_ < buckets.size() && buckets[started_].missing == 0) start(started_++);
  queue->advance();
  if (!has_started_weight_ || !queue->has_weight()) return;
  for (; finished_ < started_ && queue->is_reduced(finished_); ++finished_) queue->unpack(finished_);
}

void GradientReducer::State::start(std::size_t bucket) {
  if (observer_.wants_buckets()) {
    observer_.queued(name_of(bucket), buckets[bucket].layout.bytes());
  }
  for (const GradientPiece& piece : buckets[bucket].layout.pieces) {
    if (memory_check_ && ledger_.has_value_now(piece.gradient)) {
      throw_if(piece.gradient, memory_check_->before_reduction(piece));
    }
  }
  const collectives::CallsFor purpose(collectives::CallPurpose::bucket);
  queue->reduce(bucket,
                {ledger_, is_mean(), is_mean() ? own_weight() : 1.0, is_mean() && micro_batches_ > 0});
}

/// For the exit report: tells peers that wait for this rank's next bucket which gradient is missing. Called
/// for the first report of a step, and then only when the gradient that was named is reported.
void GradientReducer::State::name_what_is_missing(std::size_t reported) {
  if (watch_ == nullptr || (scope_before_ && reported != named_gradient_)) return;
  std::string scope = "in a step whose gradients are all ready";
  if (started_ < buckets.size()) {
    const auto& pieces = buckets[started_].layout.pieces;
    // Backward usually goes from the last gradient to the first.
    const auto missing = std::find_if(pieces.rbegin(), pieces.rend(), [&](const GradientPiece& piece) {
      return !ledger_.is_reported(piece.gradient);
    });
    named_gradient_ = missing->gradient;
    scope = fmt::format("in backward: gradient '{}' is not ready, which {} waits for",
                        topology::printable(gradients[named_gradient_].name), name_of(started_));
  }
  std::string before = watch_->set_scope(std::move(scope));
  if (!scope_before_) scope_before_ = std::move(before);
}

}  // namespace ddl
