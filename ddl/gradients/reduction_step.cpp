#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ddl/gradients/elementwise.hpp"
#include "ddl/gradients/reducer_impl.hpp"
#include "topology/json_text.hpp"

// One step of a reducer, from the first report to the means.

namespace ddl {

void GradientReducer::State::require_index(const char* name, std::size_t index) const {
  if (index < gradients.size()) return;
  throw invalid(fmt::format("{}({}): there are only {} gradients", name, index, gradients.size()));
}

void GradientReducer::State::begin(double own_weight) {
  const std::lock_guard lock(mutex_);
  if (begun) throw invalid("begin(weight) twice in a step; call wait() between");
  begun = true;
  watch.begin();
  weight = own_weight;
  // Buckets can be finished during backward only if the total is known by then.
  if (!no_sync && options.overlap && buckets->size() > 1) start_weight();
}

void GradientReducer::State::report(const char* name, std::size_t index, bool has_value,
                                    std::optional<std::span<const std::int32_t>> rows) {
  require_index(name, index);
  const std::lock_guard lock(mutex_);
  if (is_mean() && !begun) {
    throw invalid(
        fmt::format("{}() before begin(weight): gradient means need their weight before backward", name));
  }
  if (rows) require_rows(index, *rows);
  if (!ledger.report(index, has_value)) {
    throw invalid(fmt::format("{}({}): gradient '{}' was reported before in this step", name, index,
                              gradients[index].name));
  }
  watch.begin();
  watch.ready(gradients[index].name, has_value);
  other_thread_ = other_thread_ || std::this_thread::get_id() != waiter_;
  if (has_value && touched[index].rows() > 0) {
    rows ? touched[index].add(*rows) : touched[index].add_all();
  }
  if (!no_sync) {
    buckets->report(index);
    // What is alone has nothing to overlap with: it waits for `wait`, which reduces it in the caller's
    // thread.
    if (options.overlap && buckets->size() > 1) {
      buckets->start_complete(filler());
      name_what_is_missing(index);
      if (has_total && weight_sum.test() && is_good_total()) buckets->finish_done(factor(), norm);
    }
  }
  if (ledger.is_complete()) complete_.notify_all();
}

/// For the exit report: peers that wait for a bucket of this rank's are to learn which gradient it waits for.
void GradientReducer::State::name_what_is_missing(std::size_t reported) {
  if (watch_ == nullptr || (scope_before_ && reported != named_gradient_)) return;
  std::string scope = "in a step whose gradients are all ready";
  if (const std::size_t next = buckets->next(); next < buckets->size()) {
    const auto& pieces = buckets->layout(next).pieces;
    // Backward goes from the last gradients to the first, as a rule.
    const auto missing = std::find_if(pieces.rbegin(), pieces.rend(), [&](const GradientPiece& piece) {
      return !ledger.is_reported(piece.gradient);
    });
    named_gradient_ = missing->gradient;
    scope = fmt::format("in backward: gradient '{}' is not ready, which {} waits for",
                        topology::printable(gradients[named_gradient_].name), buckets->name(next));
  }
  std::string before = watch_->set_scope(std::move(scope));
  if (!scope_before_) scope_before_ = std::move(before);
}

void GradientReducer::State::require_rows(std::size_t index, std::span<const std::int32_t> rows) const {
  const std::size_t count = touched[index].rows();
  if (gradients[index].row_width == 0) {
    throw invalid(fmt::format("ready({}, rows): gradient '{}' was registered without row_width", index,
                              gradients[index].name));
  }
  for (const std::int32_t row : rows) {
    if (row >= 0 && static_cast<std::size_t>(row) < count) continue;
    throw invalid(fmt::format("ready({}, rows): found row {}; gradient '{}' has {} rows", index, row,
                              gradients[index].name, count));
  }
}

BucketSet::Fill GradientReducer::State::filler() {
  return [this](const GradientPiece& piece, std::span<float> target) { fill(piece, target); };
}

/// This rank's part of a sum over all ranks.
void GradientReducer::State::fill(const GradientPiece& piece, std::span<float> target) const {
  const std::span<const float> source = buckets->gradient(piece);
  const bool counts =
      is_mean() ? ledger.has_value_now(piece.gradient) && weight != 0 : ledger.has_value(piece.gradient);
  if (!counts) {
    std::ranges::fill(target, 0.0f);
  } else if (source.data() == target.data()) {
    if (is_mean() && weight != 1) scale_in_place(piece.gradient, target);
  } else {
    elementwise::scale_into(target, source, is_mean() ? weight : 1.0);
  }
  if (micro_batches > 0 && is_mean()) elementwise::add_scaled(target, accumulated_of(piece), 1.0);
}

void GradientReducer::State::scale_in_place(std::size_t gradient, std::span<float> values) const {
  const TouchedRows& rows = touched[gradient];
  if (rows.rows() == 0) return elementwise::scale(values, weight);
  const std::size_t width = gradients[gradient].row_width;
  for (std::size_t row = 0; row < rows.rows(); ++row) {
    if (rows.own()[row] != 0) elementwise::scale(values.subspan(row * width, width), weight);
  }
}

std::span<float> GradientReducer::State::accumulated_of(std::size_t gradient) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < gradient; ++i) at += gradients[i].values.size();
  return std::span(accumulated).subspan(at, gradients[gradient].values.size());
}

std::span<const float> GradientReducer::State::accumulated_of(const GradientPiece& piece) const {
  std::size_t at = piece.first;
  for (std::size_t i = 0; i < piece.gradient; ++i) at += gradients[i].values.size();
  return std::span(accumulated).subspan(at, piece.count);
}

ReducedStep GradientReducer::State::end(double own_weight) {
  std::unique_lock lock(mutex_);
  wait_for_other_threads(lock);
  weight = own_weight;
  return no_sync ? end_micro_batch() : reduce();
}

void GradientReducer::State::wait_for_other_threads(std::unique_lock<std::mutex>& lock) {
  if (waiter_ != std::this_thread::get_id()) {
    // Reports of the thread that waited before, or that made the reducer, are not another thread's.
    other_thread_ = false;
    waiter_ = std::this_thread::get_id();
  }
  if (!other_thread_ || ledger.is_complete()) return;
  // Half of what the other ranks wait: they are to be there to hear which one it is.
  complete_.wait_for(lock, context.options().deadline / 2, [&] { return ledger.is_complete(); });
}

ReducedStep GradientReducer::State::end_micro_batch() {
  if (!kept_problem) kept_problem = problem();
  if (is_mean() && weight > 0) {
    accumulated.resize(bytes / sizeof(float));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (ledger.has_value_now(i)) elementwise::add_scaled(accumulated_of(i), gradients[i].values, weight);
    }
  }
  weight_before += weight;
  ++micro_batches;
  begun = false;
  ledger.next_micro_batch();
  return {.weight = weight_before};
}

std::optional<Error> GradientReducer::State::weight_problem() const {
  if (std::isfinite(weight) && weight >= 0) return {};
  return invalid(fmt::format("the weight is {}; expected the number of items, 0 or more", weight));
}

std::optional<Error> GradientReducer::State::problem() const {
  if (auto wrong = weight_problem()) return wrong;
  if (const auto missing = ledger.missing()) {
    return invalid(fmt::format(
        "wait: gradient {} ('{}') was not made ready in this step; call ready({}), or absent({}) if it has "
        "no value",
        *missing, gradients[*missing].name, *missing, *missing));
  }
  return {};
}

/// A NaN among the weights tells every rank that one of them has a problem.
void GradientReducer::State::set_own_weight() {
  if (!kept_problem) kept_problem = weight_problem();
  total = kept_problem ? std::numeric_limits<double>::quiet_NaN() : weight_before + weight;
}

void GradientReducer::State::start_weight() {
  set_own_weight();
  weight_sum = context.communicator().all_reduce_async(std::span(&total, 1));
  has_total = true;
}

/// Only once weight_sum is done.
bool GradientReducer::State::is_good_total() const noexcept { return std::isfinite(total) && total > 0; }

double GradientReducer::State::factor() const noexcept { return options.leave_sums ? 1.0 : 1.0 / total; }

void GradientReducer::State::require_good_total() {
  weight_sum.wait();
  if (is_good_total()) return;
  buckets->drain();
  throw_agreed(kept_problem);
  throw invalid(total == 0 ? fmt::format("wait: the total weight of all {} ranks is 0: no rank had any item "
                                         "in this step; skip such steps on every rank",
                                         context.size())
                           : fmt::format("wait: the total weight of all {} ranks overflows", context.size()))
      .as_agreed();
}

/// Throws on all ranks if any has a problem.
void GradientReducer::State::throw_agreed(const std::optional<Error>& mine) {
  context.on_all_ranks("gradient reduction", [&] {
    if (mine) throw *mine;
  });
}

ReducedStep GradientReducer::State::reduce() {
  const struct EndStep {
    State& state;
    ~EndStep() { state.end_step(); }
  } end_whatever_happens{*this};
  try {
    watch.begin();
    Timeline::Scope waiting = watch.waiting();
    buckets->start_all(filler());
    if (!has_total) {
      set_own_weight();
      context.communicator().all_reduce(std::span(&total, 1));
    }
    if (!kept_problem) kept_problem = problem();
    require_good_total();
    buckets->finish_all(factor(), norm);
    waiting.end();
    watch.reduced();
    std::array<double, 2> counts = {kept_problem ? 1.0 : 0.0, static_cast<double>(ledger.without_value())};
    ReducedStep step{.weight = total, .scale = options.leave_sums ? 1.0 / total : 1.0};
    step.norm = norm.over_all(context.communicator(), counts) / total;
    step.finite = std::isfinite(step.norm);
    step.bytes = buckets->bytes();
    buckets->settle(step.finite && counts[0] == 0);
    if (counts[0] > 0) throw_agreed(kept_problem);
    agree_on_values(counts[1] > 0);
    if (!is_learned() && !gradients.empty()) learn();
    watch.step_over();
    return step;
  } catch (const Error& error) {
    if (error.agreed()) throw;
    const Error named = with_bucket(error);
    drain();
    throw named;
  }
}

/// All calls end with a job's first failure; the bucket that was under way says what this rank was about.
Error GradientReducer::State::with_bucket(const Error& error) {
  const std::optional<std::size_t> bucket = buckets->unfinished();
  if (!bucket) return error;
  return {error.code(), fmt::format("GradientReducer: {}: {}", buckets->name(*bucket), error.what())};
}

void GradientReducer::State::agree_on_values(bool some_are_missing) {
  values_somewhere.assign(gradients.size(), 1);
  if (!some_are_missing) return;
  for (std::size_t i = 0; i < gradients.size(); ++i) values_somewhere[i] = ledger.has_value(i) ? 1 : 0;
  context.communicator().all_reduce(std::span(values_somewhere), ReduceOp::max);
}

/// From the next step on, buckets go by the mean place of each gradient over all ranks.
void GradientReducer::State::learn() {
  learned.order = learn_order(context.communicator(), ledger.order(), gradients.size());
  make_buckets();
}

void GradientReducer::State::end_step() noexcept {
  begun = false;
  watch.end();
  ledger.next_step();
  buckets->next_step();
  for (TouchedRows& rows : touched) rows.clear();
  std::ranges::fill(accumulated, 0.0f);
  norm.clear();
  if (scope_before_) watch_->set_scope(std::move(*scope_before_));
  scope_before_.reset();
  micro_batches = 0;
  weight_before = 0;
  has_total = false;
  kept_problem.reset();
}

void GradientReducer::State::gather(const std::vector<Parameter>& parameters) {
  if (!options.sharded_update) {
    throw invalid("gather: this reducer was made without sharded_update; every rank updates all parameters");
  }
  const bool alike = std::ranges::equal(
      parameters, gradients, {}, [](const Parameter& p) { return p.values.size(); },
      [](const Gradient& g) { return g.values.size(); });
  if (!alike) {
    throw invalid(
        fmt::format("gather: {} parameters do not have the numbers of elements of the {} gradients, "
                    "one by one",
                    parameters.size(), gradients.size()));
  }
  if (context.size() > 1) buckets->gather(parameters);
}

}  // namespace ddl
