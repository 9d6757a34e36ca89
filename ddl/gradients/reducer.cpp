#include "ddl/gradients/reducer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <functional>

#include "ddl/context/agreement.hpp"
#include "ddl/log.hpp"

// The set-up of a reducer: checks, agreement between ranks, and buckets.

namespace ddl {
namespace {

void check_no_overlap(const std::vector<Gradient>& gradients) {
  struct Part {
    const std::byte* begin;
    const std::byte* end;
    const std::string* name;
  };
  std::vector<Part> parts;
  const auto add = [&](const Elements& values, const std::string& name) {
    const std::span<const std::byte> bytes = values.bytes();
    if (!bytes.empty()) parts.push_back({bytes.data(), bytes.data() + bytes.size(), &name});
  };
  for (const Gradient& gradient : gradients) {
    add(gradient.values, gradient.name);
    for (const Elements& summand : gradient.summands) add(summand, gradient.name);
  }
  std::ranges::sort(parts, std::less<const std::byte*>(), &Part::begin);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (std::less<const std::byte*>()(parts[i].begin, parts[i - 1].end)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("GradientReducer: gradients '{}' and '{}' overlap in memory, so one would be "
                              "reduced twice; register shared gradients once",
                              *parts[i - 1].name, *parts[i].name));
    }
  }
}

/// "603,176".
std::string with_commas(std::size_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

/// Saved states hold a hash of these texts.
std::vector<std::string> entries_of(const GradientReducerOptions& options, bool on_device) {
  std::vector<std::string> entries = {options.gradients == GradientKind::mean ? "means" : "sums",
                                      fmt::format("bucket_bytes {}", options.bucket_bytes),
                                      fmt::format("overlap {}", options.overlap),
                                      fmt::format("wire {}", to_string(options.wire)),
                                      fmt::format("sharded_update {}", options.sharded_update),
                                      fmt::format("leave_sums {}", options.leave_sums)};
  if (options.narrow_sums) entries.emplace_back("narrow_sums");
  if (on_device) entries.push_back(fmt::format("micro_batches {}", options.micro_batches));
  return entries;
}

std::vector<std::string> entries_of(const std::vector<Gradient>& gradients) {
  std::vector<std::string> entries;
  for (const Gradient& gradient : gradients) {
    const std::string rows =
        gradient.row_width > 0 ? fmt::format(" in rows of {}", gradient.row_width) : std::string();
    entries.push_back(fmt::format("'{}' of {} {}{}", gradient.name, gradient.values.size(),
                                  to_string(gradient.values.type()), rows));
  }
  return entries;
}

}  // namespace

GradientReducer::State::State(const Context& ctx, std::vector<Gradient> registered,
                              GradientReducerOptions opts, std::unique_ptr<GradientQueue> its_queue)
    : context(ctx),
      gradients(std::move(registered)),
      options(opts),
      queue(std::move(its_queue)),
      observer_(ctx),
      ledger_(gradients.size()),
      waiter_(std::this_thread::get_id()),
      exceptions_at_start_(std::uncaught_exceptions()),
      watch_(context.size() > 1 ? watch_of(context) : nullptr) {
  context.on_all_ranks("registering gradients", [&] {
    check_options();
    check(gradients);
  });
  agree();
  for (const Gradient& gradient : gradients) {
    bytes += gradient.values.bytes().size();
    touched.emplace_back(context, gradient);
  }
  queue->open({context, gradients, options, touched});
  learned.bucket_bytes = options.bucket_bytes;
  if (learned.bucket_bytes == 0) {
    auto chosen = static_cast<std::int64_t>(context.is_root() ? queue->bucket_bytes(bytes) : 0);
    context.communicator().broadcast(std::span(&chosen, 1));
    learned.bucket_bytes = static_cast<std::size_t>(chosen);
  }
  make_buckets();
  if (options.sharded_update) shards = own_shards();
  watch_memory();
  log_buckets();
}

/// Once for reducers with the same buckets: some trainers make a new one in each epoch.
void GradientReducer::State::log_buckets() const {
  const std::string line =
      fmt::format("{} gradient{}, {} bytes, in {} bucket{} of at most {} bytes", gradients.size(),
                  gradients.size() == 1 ? "" : "s", with_commas(bytes), buckets.size(),
                  buckets.size() == 1 ? "" : "s", with_commas(learned.bucket_bytes));
  std::string& before = context.state().logged_buckets;
  if (before != line) context.log().info(line);
  before = line;
}

GradientReducer::State::~State() {
  // Otherwise peers in the middle of a step would wait for buckets that this rank never starts.
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (is_unwinding && queue->is_busy()) {
    announce_failure(context, "an exception has ended a step in which gradients are being reduced");
  }
  queue->drain();
}

void GradientReducer::State::watch_memory() {
  if (context.options().check && !queue->is_on_device()) memory_check_.emplace(gradients);
}

void GradientReducer::State::check_options() const {
  if (options.gradients != GradientKind::sum && options.gradients != GradientKind::mean) {
    throw invalid("the kind of gradients is neither sum nor mean");
  }
  const DataType wire = options.wire;
  if (wire != DataType::f32 && wire != DataType::bf16 && wire != DataType::f16) {
    throw invalid("the wire type is {}; expected f32, bf16 or f16", to_string(wire));
  }
  if (wire != DataType::f32 && context.options().reproducible) {
    throw invalid(
        "the wire type is {} in a reproducible context; expected f32: what is rounded on the wire depends on "
        "which ranks share a host",
        to_string(wire));
  }
}

void GradientReducer::State::check(const std::vector<Gradient>& given) const {
  for (const Gradient& gradient : given) check(gradient);
  check_no_overlap(given);
}

void GradientReducer::State::check(const Gradient& gradient) const {
  const auto& [name, values, row_width, summands] = gradient;
  const auto require = [&](bool holds, const std::string& problem) {
    if (!holds) throw invalid("gradient '{}' {}", name, problem);
  };
  const DataType type = values.type();
  require(is_narrow(type) || type == DataType::f32 || type == DataType::f64,
          fmt::format("is {}; expected f32, f64, f16 or bf16", to_string(type)));
  require(values.size() == 0 || values.data() != nullptr,
          fmt::format("of {} {} has no memory", values.size(), to_string(type)));
  require(row_width == 0 || values.size() % row_width == 0,
          fmt::format("has {} elements, which is no whole number of rows of {}", values.size(), row_width));
  const bool is_sent_as_it_is = summed_type(type, options.narrow_sums) != DataType::f32;
  require(!is_sent_as_it_is || options.wire == DataType::f32,
          fmt::format("is {}, which travels as it is; found the wire type {}, expected f32", to_string(type),
                      to_string(options.wire)));
  require(type != DataType::f64 || !queue->is_on_device(), "is f64; expected f32, f16 or bf16 on a device");
  if (summands.empty()) return;
  require(!queue->is_on_device(), "has summands; expected none on a device");
  require(!is_narrow(type), fmt::format("is {} and has summands, which are f32 or f64", to_string(type)));
  for (const Elements& summand : summands) {
    require(summand.type() == type && summand.size() == values.size() && summand.data() != nullptr,
            fmt::format("has a summand of {} {}, expected {} {}, like the gradient", summand.size(),
                        to_string(summand.type()), values.size(), to_string(type)));
  }
}

void GradientReducer::State::agree() {
  std::vector<std::string> entries = entries_of(options, queue->is_on_device());
  require_same_entries(context, "GradientReducer", "option", entries);
  const std::vector<std::string> described = entries_of(gradients);
  require_same_entries(context, "GradientReducer", "gradient", described);
  if (queue->is_on_device()) entries.emplace_back("on devices");
  entries.insert(entries.end(), described.begin(), described.end());
  learned.gradients = hash_of_entries(entries);
}

/// The buckets in the order in which they are reduced. With a sharded update the learned order only sorts the
/// buckets, because shards must not move.
std::vector<BucketLayout> GradientReducer::State::layouts() const {
  std::vector<std::size_t> counts;
  std::vector<std::uint8_t> rows;
  std::vector<DataType> types;
  for (const Gradient& gradient : gradients) {
    counts.push_back(gradient.values.size());
    types.push_back(summed_type(gradient.values.type(), options.narrow_sums));
    rows.push_back(gradient.row_width > 0 ? 1 : 0);
  }
  const bool by_readiness = is_learned() && !options.sharded_update;
  const std::vector<std::size_t> order = by_readiness ? learned.order : reverse_order(gradients.size());
  std::vector<BucketLayout> layouts =
      bucket_layout({.counts = counts,
                     .rows = rows,
                     .order = order,
                     .bucket_bytes = learned.bucket_bytes,
                     .multiple = options.sharded_update ? static_cast<std::size_t>(context.size()) : 1,
                     .types = types});
  if (is_learned() && options.sharded_update) {
    std::vector<std::size_t> place(gradients.size());
    for (std::size_t i = 0; i < learned.order.size(); ++i) place[learned.order[i]] = i;
    std::ranges::stable_sort(layouts, {}, [&](const BucketLayout& layout) {
      std::size_t last = 0;
      for (const GradientPiece& piece : layout.pieces) last = std::max(last, place[piece.gradient]);
      return last;
    });
  }
  // The number of touched rows is known only when a step ends, so on devices buckets with rows come last.
  if (queue->is_on_device()) std::ranges::stable_partition(layouts, [](const auto& l) { return !l.rows; });
  return layouts;
}

void GradientReducer::State::make_buckets() {
  const std::vector<BucketLayout> made = layouts();
  queue->arrange(made, is_learned());
  buckets.clear();
  buckets_of_.assign(gradients.size(), {});
  for (const BucketLayout& layout : made) {
    Bucket& bucket = buckets.emplace_back(Bucket{.layout = layout});
    for (const GradientPiece& piece : layout.pieces) {
      auto& of_gradient = buckets_of_[piece.gradient];
      if (!of_gradient.empty() && of_gradient.back() == buckets.size() - 1) continue;
      of_gradient.push_back(buckets.size() - 1);
      ++bucket.gradients;
    }
    bucket.missing = bucket.gradients;
  }
  // On hosts a single bucket has nothing to overlap with, so `wait` reduces it in the caller's thread.
  overlaps_ = options.overlap && (queue->is_on_device() || buckets.size() > 1);
  // Ranks may be in groups with different plans, so the hash covers all ranks. Reproducible sums depend on no
  // plan.
  learned.plans = 0;
  if (context.options().reproducible || context.size() == 1) return;
  learned.plans = hash_of_entries(gather_texts(context, fmt::format("{}", fmt::join(queue->plans(), ","))));
}

/// A gradient with rows has no padding; the elements that its count leaves over belong to every rank.
std::vector<GradientPiece> GradientReducer::State::own_shards() const {
  std::vector<GradientPiece> result;
  const auto add = [&](const BucketLayout& layout, std::size_t first, std::size_t end) {
    std::size_t at = 0;
    for (const GradientPiece& piece : layout.pieces) {
      const std::size_t from = std::max(first, at);
      const std::size_t to = std::min(end, at + piece.count);
      if (from < to) result.push_back({piece.gradient, piece.first + from - at, to - from});
      at += piece.count;
    }
  };
  const auto rank = static_cast<std::size_t>(context.rank());
  const auto ranks = static_cast<std::size_t>(context.size());
  for (const Bucket& bucket : buckets) {
    const std::size_t count = bucket.layout.count() / ranks;
    add(bucket.layout, rank * count, (rank + 1) * count);
    add(bucket.layout, count * ranks, bucket.layout.count());
  }
  return result;
}

/// Returns, e.g., "bucket 3 of 20 (gradients 'a' to 'f')".
std::string GradientReducer::State::name_of(std::size_t bucket) const {
  const auto& pieces = buckets[bucket].layout.pieces;
  const std::string& first = gradients[pieces.front().gradient].name;
  const std::string& last = gradients[pieces.back().gradient].name;
  return fmt::format("bucket {} of {} ({})", bucket + 1, buckets.size(),
                     buckets[bucket].gradients == 1 ? fmt::format("gradient '{}'", first)
                                                    : fmt::format("gradients '{}' to '{}'", first, last));
}

std::size_t GradientReducer::State::largest_bucket() const noexcept {
  std::size_t largest = 0;
  for (const Bucket& bucket : buckets) {
    if (!bucket.layout.rows) largest = std::max(largest, bucket.layout.bytes());
  }
  return largest;
}

std::string GradientReducer::State::state() const {
  LearnedBuckets now = learned;
  now.ranks = context.size();
  return now.json();
}

void GradientReducer::State::restore(std::string_view json) {
  LearnedBuckets saved;
  context.on_all_ranks("GradientReducer::restore", [&] {
    saved = LearnedBuckets::parse(json, gradients.size());
    if (saved.gradients == learned.gradients) return;
    throw Error(ErrorCode::mismatch,
                "GradientReducer::restore: the state is one of other gradients (names, sizes, order) or "
                "options; give the reducer those that it was saved with, or do without it");
  });
  require_same_entries(context, "GradientReducer::restore", "state", {std::string(json)});
  learned = saved;
  make_buckets();
  if (options.sharded_update) shards = own_shards();
  if (saved.ranks == context.size() && saved.plans != learned.plans) {
    context.log().notice(
        "GradientReducer: buckets are reduced by other plans than when the state was saved (another "
        "topology, placement, DDL_OPTIONS, DDL_PLAN or other measured figures of links), so sums may differ "
        "in their last bits");
  }
}

void GradientReducer::State::rebind(std::vector<Gradient> moved) {
  const std::lock_guard lock(mutex_);
  if (queue->is_on_device())
    throw invalid("rebind: found gradients on a device, expected them in the host's memory");
  if (has_begun()) {
    throw invalid("rebind: found a step that has begun, expected none; end it with {} first",
                  names.call("wait"));
  }
  check(moved);
  const std::vector<std::string> found = entries_of(moved);
  const std::vector<std::string> expected = entries_of(gradients);
  if (found.size() != expected.size()) {
    throw invalid("rebind: found {} gradients, expected the {} that the reducer was made for", found.size(),
                  expected.size());
  }
  const auto [other, own] = std::ranges::mismatch(found, expected);
  if (other != found.end()) throw invalid("rebind: found gradient {}, expected {}, as before", *other, *own);
  gradients = std::move(moved);
  queue->rebind();
  watch_memory();
}

void GradientReducer::State::gather(const std::vector<Parameter>& parameters, DeviceStream stream) {
  if (!options.sharded_update) {
    throw invalid("gather: this reducer was made without sharded_update; every rank updates all parameters");
  }
  const auto is_alike = [](const Parameter& p, const Gradient& g) {
    const DataType type = p.values.type();
    const bool is_float = type != DataType::u8 && type != DataType::i32 && type != DataType::i64;
    return p.values.size() == g.values.size() && is_float &&
           summed_type(type) == summed_type(g.values.type());
  };
  if (!std::ranges::equal(parameters, gradients, is_alike)) {
    throw invalid(
        "gather: the {} parameters are not as the {} gradients, one by one: expected as many elements, of "
        "f64 "
        "where the gradient is, else of f32, f16 or bf16",
        parameters.size(), gradients.size());
  }
  if (context.size() > 1) queue->gather(parameters, stream);
}

}  // namespace ddl
