#include "ddl/gradients/reducer_impl.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>

#include "ddl/context/agreement.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/gradients/bucket_size.hpp"
#include "ddl/log.hpp"

// How a reducer is made: what ranks agree on, and its buckets.

namespace ddl {
namespace {

Error invalid_reducer(const std::string& message) {
  return {ErrorCode::invalid_argument, "GradientReducer: " + message};
}

void check_no_overlap(const std::vector<Gradient>& gradients) {
  std::vector<const Gradient*> order;
  for (const Gradient& gradient : gradients) {
    if (!gradient.values.empty()) order.push_back(&gradient);
  }
  const auto address = [](const Gradient* gradient) { return gradient->values.data(); };
  std::ranges::sort(order, std::less<const float*>(), address);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::span<float> previous = order[i - 1]->values;
    if (std::less<const float*>()(order[i]->values.data(), previous.data() + previous.size())) {
      throw invalid_reducer(
          fmt::format("gradients '{}' and '{}' overlap in memory, so one would be reduced twice; "
                      "register shared gradients once",
                      order[i - 1]->name, order[i]->name));
    }
  }
}

void check_rows(const Gradient& gradient) {
  if (gradient.row_width == 0 || gradient.values.size() % gradient.row_width == 0) return;
  throw invalid_reducer(fmt::format("gradient '{}' has {} elements, which is no whole number of rows of {}",
                                    gradient.name, gradient.values.size(), gradient.row_width));
}

void check(const std::vector<Gradient>& gradients, const GradientReducerOptions& options) {
  if (options.gradients != GradientKind::sum && options.gradients != GradientKind::mean) {
    throw invalid_reducer("the kind of gradients is neither sum nor mean");
  }
  const DataType wire = options.wire;
  if (wire != DataType::f32 && wire != DataType::bf16 && wire != DataType::f16) {
    throw invalid_reducer(fmt::format("the wire type is {}; expected f32, bf16 or f16", to_string(wire)));
  }
  check_no_overlap(gradients);
  for (const Gradient& gradient : gradients) check_rows(gradient);
}

std::vector<std::string> entries_of(const GradientReducerOptions& options) {
  return {options.gradients == GradientKind::mean ? "means" : "sums",
          fmt::format("bucket_bytes {}", options.bucket_bytes),
          fmt::format("overlap {}", options.overlap),
          fmt::format("wire {}", to_string(options.wire)),
          fmt::format("sharded_update {}", options.sharded_update),
          fmt::format("leave_sums {}", options.leave_sums)};
}

std::vector<std::string> entries_of(const std::vector<Gradient>& gradients) {
  std::vector<std::string> entries;
  for (const Gradient& gradient : gradients) {
    const std::string rows =
        gradient.row_width > 0 ? fmt::format(" in rows of {}", gradient.row_width) : std::string();
    entries.push_back(fmt::format("'{}' of {} floats{}", gradient.name, gradient.values.size(), rows));
  }
  return entries;
}

}  // namespace

Error GradientReducer::State::invalid(const std::string& message) { return invalid_reducer(message); }

GradientReducer::State::State(Context& ctx, std::vector<Gradient> registered, GradientReducerOptions opts)
    : context(ctx),
      gradients(std::move(registered)),
      options(opts),
      watch(ctx),
      ledger(gradients.size()),
      norm(ctx.options().reproducible),
      waiter_(std::this_thread::get_id()),
      exceptions_at_start_(std::uncaught_exceptions()),
      watch_(context.size() > 1 ? watch_of(context) : nullptr) {
  context.on_all_ranks("registering gradients", [&] { check(gradients, options); });
  agree();
  for (const Gradient& gradient : gradients) {
    bytes += gradient.values.size_bytes();
    touched.emplace_back(gradient.row_width > 0 ? gradient.values.size() / gradient.row_width : 0);
  }
  learned.bucket_bytes =
      options.bucket_bytes > 0 ? options.bucket_bytes : chosen_bucket_bytes(context, bytes);
  open_ways();
  make_buckets();
}

bool GradientReducer::State::is_busy() noexcept {
  try {
    return !weight_sum.test() || buckets->unfinished();
  } catch (const Error&) {
    return true;
  }
}

GradientReducer::State::~State() {
  if (!buckets) return;
  // Peers that are in a step would wait for buckets of this rank that never come.
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (is_unwinding && is_busy()) {
    announce_failure(context, "an exception has ended a step in which gradients are being reduced");
  }
  drain();
}

/// Waits for what has been started, whatever becomes of it: its memory may be about to go.
void GradientReducer::State::drain() noexcept {
  const auto wait = [](const auto& work) {
    try {
      work();
    } catch (const std::exception&) {  // those that wait for results have it, too
    }
  };
  wait([&] { weight_sum.wait(); });
  for (std::size_t i = 0; i < buckets->next(); ++i) wait([&] { buckets->wait_for(i); });
}

void GradientReducer::State::agree() {
  std::vector<std::string> entries = entries_of(options);
  require_same_entries(context, "GradientReducer", "option", entries);
  const std::vector<std::string> described = entries_of(gradients);
  require_same_entries(context, "GradientReducer", "gradient", described);
  entries.insert(entries.end(), described.begin(), described.end());
  learned.gradients = hash_of_entries(entries);
}

void GradientReducer::State::open_ways() {
  const bool has_rows = std::ranges::any_of(gradients, [](const Gradient& g) { return g.row_width > 0; });
  if (has_rows) ways.rows.emplace(context.communicator().split(0));
  if (options.wire != DataType::f32 && context.hosts() > 1) ways.hierarchy.emplace(context.communicator());
}

/// Residuals belong to buckets, so there are none before these are final.
DataType GradientReducer::State::wire() const noexcept {
  return ways.hierarchy && is_learned() ? options.wire : DataType::f32;
}

std::size_t GradientReducer::State::multiple() const {
  const std::size_t parts = ways.hierarchy ? static_cast<std::size_t>(ways.hierarchy->shards) : 1;
  const std::size_t ranks = options.sharded_update ? static_cast<std::size_t>(context.size()) : 1;
  return std::lcm(parts, ranks);
}

/// Reverse order of registration, until another one has been learned.
std::vector<std::size_t> GradientReducer::State::order_of_layout() const {
  return is_learned() && !options.sharded_update ? learned.order : reverse_order(gradients.size());
}

/// Shards are not to move, so that only the order of the buckets can change.
void GradientReducer::State::order_by_readiness(std::vector<BucketLayout>& layouts) const {
  std::vector<std::size_t> place(gradients.size());
  for (std::size_t i = 0; i < learned.order.size(); ++i) place[learned.order[i]] = i;
  std::ranges::stable_sort(layouts, {}, [&](const BucketLayout& layout) {
    std::size_t last = 0;
    for (const GradientPiece& piece : layout.pieces) last = std::max(last, place[piece.gradient]);
    return last;
  });
}

void GradientReducer::State::make_buckets() {
  std::vector<std::size_t> counts;
  std::vector<std::uint8_t> rows;
  for (const Gradient& gradient : gradients) {
    counts.push_back(gradient.values.size());
    rows.push_back(gradient.row_width > 0 ? 1 : 0);
  }
  const std::vector<std::size_t> order = order_of_layout();
  std::vector<BucketLayout> layouts =
      bucket_layout({.counts = counts,
                     .rows = rows,
                     .order = order,
                     .bucket_count = std::max<std::size_t>(learned.bucket_bytes / sizeof(float), 1),
                     .multiple = multiple()});
  if (is_learned() && options.sharded_update) order_by_readiness(layouts);
  buckets.emplace(context, ways, watch,
                  BucketSet::Settings{gradients, touched, wire(), options.sharded_update},
                  std::move(layouts));
  if (options.sharded_update) shards = buckets->shards();
  plans_hash = agreed_plans_hash();
}

/// Ranks may be in groups with different plans, so all of them count. Reproducible sums depend on no plan.
std::uint64_t GradientReducer::State::agreed_plans_hash() {
  if (context.options().reproducible || context.size() == 1) return 0;
  const std::string own = fmt::format("{}", fmt::join(buckets->plans(), ","));
  return hash_of_entries(gather_texts(context, own));
}

std::string GradientReducer::State::state() const {
  LearnedBuckets now = learned;
  now.ranks = context.size();
  now.plans = plans_hash;
  return now.json();
}

void GradientReducer::State::restore(std::string_view json) {
  context.on_all_ranks("GradientReducer::restore", [&] {
    LearnedBuckets state = LearnedBuckets::parse(json, gradients.size());
    if (state.gradients != learned.gradients) {
      throw Error(ErrorCode::mismatch,
                  "GradientReducer::restore: the state is one of other gradients (names, sizes, order) or "
                  "options; give the reducer those that it was saved with, or do without it");
    }
    learned = std::move(state);
  });
  require_same_entries(context, "GradientReducer::restore", "state", {std::string(json)});
  make_buckets();
  if (learned.ranks == context.size() && learned.plans != plans_hash) {
    context.log().notice(
        "GradientReducer: buckets are reduced by other plans than when the state was saved (another "
        "topology, "
        "placement, DDL_OPTIONS, DDL_PLAN or other measured figures of links), so sums may differ in their "
        "last "
        "bits");
  }
}

}  // namespace ddl
