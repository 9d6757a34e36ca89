#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ddl/context/context_state.hpp"
#include "ddl/gradients/reducer.hpp"
#include "ddl/log.hpp"
#include "ddl/parameters/parameters.hpp"

// The end of a reducer's step: the rest of its buckets, the means and the outcome.

namespace ddl {

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
  if (given.is_given) weight_ = given.number;
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

ReducedStep GradientReducer::State::result(DeviceStream stream) {
  if (!has_captured_ && !has_result_) {
    throw invalid(
        "result(stream) before finish(): no step has been finished since the last result, nor captured");
  }
  has_result_ = false;
  queue->ready_on(stream);
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
