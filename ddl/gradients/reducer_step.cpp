#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ddl/context/context_state.hpp"
#include "ddl/gradients/elementwise.hpp"
#include "ddl/gradients/reducer.hpp"
#include "ddl/log.hpp"
#include "ddl/parameters/parameters.hpp"
#include "topology/json_text.hpp"

// A step of a reducer, from the first report to the means.

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

void GradientReducer::State::wait_for_other_threads(std::unique_lock<std::mutex>& lock) {
  if (waiter_ != std::this_thread::get_id()) {
    // Earlier reports came from the thread that waited before, or that made the reducer, so they do not show
    // that other threads report gradients.
    other_thread_ = false;
    waiter_ = std::this_thread::get_id();
  }
  if (!other_thread_ || ledger_.is_complete()) return;
  // Half of the deadline of the other ranks, so that they still wait when this rank reports the missing one.
  complete_.wait_for(lock, context.options().deadline / 2, [&] { return ledger_.is_complete(); });
}

/// An error if `name` was called with a weight and should not have been, or without one.
std::optional<Error> GradientReducer::State::wrong_pairing(const char* name, bool gives_weight) const {
  if (gives_weight ? !is_mean() && !begun_ : begun_) return {};
  const std::string with_weight = names.call(name, "weight");
  const std::string without_weight = names.call(name, names.given);
  const std::string begin = names.call("begin", "weight");
  if (gives_weight && is_mean()) {
    return invalid(
        "{} is for gradient sums; this reducer was made for means: give the weight to {}, before backward, "
        "and "
        "call {}",
        with_weight, begin, without_weight);
  }
  if (gives_weight) {
    return invalid("{} after {}: the step has its weight; call {}", with_weight, begin, without_weight);
  }
  if (is_mean()) return invalid("{} without {} before it in this step", without_weight, begin);
  return invalid("{} without a weight: this reducer was made for sums; call {}, or {} before backward",
                 without_weight, with_weight, begin);
}

ReducedStep GradientReducer::State::end(const char* name, const GivenWeight& given, DeviceStream stream) {
  if (const auto wrong = wrong_pairing(name, given.is_given)) throw Error(*wrong);
  std::unique_lock lock(mutex_);
  if (queue->is_captured(stream) || is_captured_) follow(stream);
  wait_for_other_threads(lock);
  if (given) weight_ = given.number;
  if (no_sync) {
    if (given.on_device != nullptr) {
      throw invalid(
          "{} in a micro-batch: expected a number; give 0, and the weight of all micro-batches to the call "
          "that "
          "ends the step",
          names.call(name, "DeviceWeight"));
    }
    end_micro_batch(name, stream);
    return {.weight = weight_before_};
  }
  const struct EndStep {
    State& state;
    ~EndStep() { state.end_step(); }
  } end_whatever_happens{*this};
  try {
    reduce_rest(name, given.on_device);
    if (!queue->is_on_device()) return agree_on_step();
    queue->precede(stream);
    if (!is_learned() && !gradients.empty()) {
      queue->fetch();  // afterwards no kernel of this rank waits for its peers
      learn();
    }
  } catch (const Error& error) {
    if (error.agreed()) throw;
    const Error named = with_bucket(error);
    queue->drain();
    throw named;
  }
  values_are_own_ = true;
  (is_captured_ ? has_captured_ : has_result_) = true;
  if (kept_problem_) throw Error(*kept_problem_);
  return {};
}

void GradientReducer::State::end_micro_batch(const char* name, DeviceStream stream) {
  if (!kept_problem_) kept_problem_ = problem(name);
  if (is_mean() && weight_ > 0 && std::isfinite(weight_)) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (ledger_.has_value_now(i)) queue->accumulate(i, weight_);
    }
  }
  queue->precede(stream);  // the next micro-batch overwrites the gradients
  weight_before_ += weight_;
  ++micro_batches_;
  begun_ = false;
  ledger_.next_micro_batch();
}

std::optional<Error> GradientReducer::State::weight_problem() const {
  if (std::isfinite(weight_) && weight_ >= 0) return {};
  return invalid("the weight is {}; expected the number of items, 0 or more", weight_);
}

std::optional<Error> GradientReducer::State::problem(const char* name) const {
  if (auto wrong = weight_problem()) return wrong;
  if (const auto missing = ledger_.missing()) {
    const std::string number = std::to_string(names.number(*missing));
    return invalid("{}{} was not made ready in this step; call {}, or {} if it has no value",
                   names.lead(name), described(*missing), names.call("ready", number),
                   names.call("absent", number));
  }
  return {};
}

/// Whether this rank's means are the result, bit for bit: a weight would only round them.
bool GradientReducer::State::is_alone() const noexcept {
  return is_mean() && context.size() == 1 && micro_batches_ == 0 && !options.leave_sums &&
         !queue->is_on_device();
}

/// Sends a NaN as the weight if this rank has a problem, so that every rank learns of it.
void GradientReducer::State::start_weight(bool blocking) {
  if (!kept_problem_) kept_problem_ = weight_problem();
  has_started_weight_ = true;
  const collectives::CallsFor purpose(collectives::CallPurpose::weight);
  queue->start_weight(
      kept_problem_ ? std::numeric_limits<double>::quiet_NaN() : weight_before_ + own_weight(), blocking);
}

Error GradientReducer::State::total_problem(double total) const {
  if (total == 0) {
    return invalid(
        "the total weight of all {} ranks is 0: no rank had any item in this step; skip such steps on every "
        "rank",
        context.size());
  }
  if (std::isinf(total)) {
    return invalid("the total weight of all {} ranks overflows", context.size());
  }
  return invalid(
      "the sum of the weights of all {} ranks is {}: some rank's weight is no number of items, or it had "
      "another problem, which it reports itself",
      context.size(), total);
}

void GradientReducer::State::require_good_total() {
  const double total = queue->total_weight();
  if (std::isfinite(total) && total > 0) return;
  queue->drain();
  throw_agreed(kept_problem_);
  throw total_problem(total).as_agreed();
}

/// Throws on all ranks if any rank has a problem; `mine` is this rank's.
void GradientReducer::State::throw_agreed(const std::optional<Error>& mine) {
  const collectives::CallsFor purpose(collectives::CallPurpose::agreement);
  context.on_all_ranks("GradientReducer", [&] {
    if (!mine) return;
    const std::string_view text = mine->what();
    throw Error(mine->code(), std::string(text.starts_with(prefix) ? text.substr(prefix.size()) : text));
  });
}

/// Does the rest of a step up to its outcome; on a device it only queues the work.
void GradientReducer::State::reduce_rest(const char* name, const double* weight_on_device) {
  observer_.begin();
  Timeline::Scope waiting = observer_.waiting();
  while (started_ < buckets.size()) start(started_++);
  // After all buckets, because the number of buckets started during backward differs between ranks.
  if (weight_on_device != nullptr) {
    queue->start_weight(weight_before_, weight_on_device);
  } else if (!has_started_weight_) {
    start_weight(true);
  }
  if (!kept_problem_) kept_problem_ = problem(name);
  warn_of_no_values();
  if (!queue->is_on_device()) require_good_total();
  for (; finished_ < buckets.size(); ++finished_) {
    queue->wait(finished_);
    queue->unpack(finished_);
  }
  waiting.end();
  if (!queue->is_on_device()) observer_.reduced();
  values_somewhere_ = ledger_.values();
  const collectives::CallsFor purpose(collectives::CallPurpose::norm);
  queue->conclude(kept_problem_.has_value(),
                  static_cast<std::size_t>(std::ranges::count(values_somewhere_, 0)));
  bytes_of_step_ = queue->bytes();
}

void GradientReducer::State::warn_of_no_values() {
  const double weight = weight_before_ + weight_;
  if (has_warned_of_no_values_ || kept_problem_ || gradients.empty() || !(weight > 0)) return;
  if (std::ranges::any_of(ledger_.values(), [](std::uint8_t has_value) { return has_value != 0; })) return;
  has_warned_of_no_values_ = true;
  Log own = context.log().of_group(true);  // each rank's own
  own.warning(fmt::format(
      "gradient reducer: rank {} has weight {} in this step, but all its gradients are absent and count "
      "as zeros; was backward forgotten there? A rank without items has weight 0",
      context.rank(), weight));
}

/// Ends a step on hosts: all ranks return the same result or throw the same error.
ReducedStep GradientReducer::State::agree_on_step() {
  StepOutcome outcome = queue->fetch();
  queue->settle(outcome.step.finite && outcome.problems == 0);
  if (outcome.problems > 0) throw_agreed(kept_problem_);
  if (outcome.missing > 0) {
    const collectives::CallsFor purpose(collectives::CallPurpose::absence);
    context.communicator().all_reduce(std::span(values_somewhere_), ReduceOp::max);
  }
  if (!is_learned() && !gradients.empty()) learn();
  observer_.step_over();
  if (memory_check_) {
    memory_check_->after_step();
    check_broadcast_parameters(context);
  }
  if (is_alone()) outcome.step.weight = weight_;
  outcome.step.bytes = bytes_of_step_;
  return outcome.step;
}

ReducedStep GradientReducer::State::result() {
  if (!has_result_) {
    throw invalid(
        "{} before {}: no step has been finished since the last result{}", names.call("result"),
        names.call("finish"),
        has_captured_ && names.prefix.empty() ? "; that of a graph's launch is result(stream)" : "");
  }
  has_result_ = false;
  return fetched();
}

ReducedStep GradientReducer::State::result(DeviceStream launched_on) {
  if (!has_captured_) throw invalid("result(stream) is for launches of a graph; no step has been captured");
  queue->ready_on(launched_on);
  return fetched();
}

ReducedStep GradientReducer::State::fetched() {
  ReducedStep step = queue->fetch().step;
  if (!(std::isfinite(step.weight) && step.weight > 0)) throw total_problem(step.weight);
  step.bytes = bytes_of_step_;
  return step;
}

bool GradientReducer::State::has_gradient(std::size_t index) {
  require_index("has_gradient", index);
  if (values_are_own_) {
    const collectives::CallsFor purpose(collectives::CallPurpose::absence);
    context.communicator().all_reduce(std::span(values_somewhere_), ReduceOp::max);
    values_are_own_ = false;
  }
  return !values_somewhere_.empty() && values_somewhere_[index] != 0;
}

/// Adds the oldest unfinished bucket to the message: the job's first failure ends all calls, and its text
/// alone does not say what this rank was doing.
Error GradientReducer::State::with_bucket(const Error& error) {
  const std::optional<std::size_t> bucket = queue->unfinished();
  if (!bucket) return error;
  return {error.code(), fmt::format("GradientReducer: {}: {}", name_of(*bucket), error.what())};
}

/// Makes new buckets, in the order in which gradients became ready on average over all ranks.
void GradientReducer::State::learn() {
  const collectives::CallsFor purpose(collectives::CallPurpose::order);
  learned.order = learn_order(context.communicator(), ledger_.order(), gradients.size());
  make_buckets();
}

void GradientReducer::State::end_step() noexcept {
  begun_ = has_followed_ = is_captured_ = false;
  observer_.end();
  ledger_.next_step();
  queue->next_step();
  started_ = finished_ = 0;
  for (Bucket& bucket : buckets) bucket.missing = bucket.gradients;
  for (TouchedRows& rows : touched) rows.clear();
  if (scope_before_) watch_->set_scope(std::move(*scope_before_));
  scope_before_.reset();
  micro_batches_ = 0;
  weight_before_ = 0;
  has_started_weight_ = false;
  kept_problem_.reset();
}

}  // namespace ddl
