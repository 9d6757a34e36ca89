#include "ddl/gradients/stream_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "ddl/context/agreement.hpp"
#include "ddl/gradients/bucket_reduction.hpp"

namespace ddl {
namespace {

using gradient_pass::Piece;

/// Enough for a device's full rate; a first and a last one that are not worth mention.
constexpr std::size_t most_bucket_bytes = std::size_t{25} << 20;
constexpr std::size_t least_bucket_bytes = std::size_t{1} << 20;
constexpr std::size_t buckets_wanted = 20;
/// Between which buckets begin.
constexpr std::size_t line_bytes = 128;

std::size_t chosen_bytes(std::size_t total) {
  return std::clamp(total / buckets_wanted, least_bucket_bytes, most_bucket_bytes);
}

std::size_t lines_of(std::size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

gradient_pass::Wire wire_of(DataType type) {
  if (type == DataType::bf16) return gradient_pass::Wire::bf16;
  return type == DataType::f16 ? gradient_pass::Wire::f16 : gradient_pass::Wire::f32;
}

}  // namespace

Error StreamReducer::invalid(const std::string& message) {
  return {ErrorCode::invalid_argument, "DeviceGradientReducer: " + message};
}

StreamReducer::StreamReducer(Context& context, GradientQueue& queue, std::vector<StreamGradient> gradients,
                             StreamReducerOptions options)
    : context_(context),
      queue_(queue),
      gradients_(std::move(gradients)),
      options_(options),
      buckets_of_(gradients_.size()),
      ledger_(gradients_.size()) {
  context.on_all_ranks("registering gradients", [&] { check(); });
  agree();
  for (const StreamGradient& gradient : gradients_) bytes_ += gradient.count * sizeof(float);
  learned_.bucket_bytes = options.bucket_bytes > 0 ? options.bucket_bytes : chosen_bytes(bytes_);
  context.on_all_ranks("device memory", [&] {
    weight_sum_ = reinterpret_cast<double*>(queue_.allocate(sizeof(double)));
    square_sum_ = reinterpret_cast<double*>(queue_.allocate(sizeof(double)));
    outcome_ = reinterpret_cast<gradient_pass::Outcome*>(queue_.allocate(sizeof(gradient_pass::Outcome)));
    if (context.options().reproducible) {
      exact_squares_ = reinterpret_cast<ExactSquares*>(queue_.allocate(sizeof(ExactSquares)));
    }
    if (options.micro_batches && is_mean()) accumulated_ = reinterpret_cast<float*>(queue_.allocate(bytes_));
    if (wire() != DataType::f32) residual_ = reinterpret_cast<float*>(queue_.allocate(bytes_));
  });
  make_buckets();
}

void StreamReducer::check() const {
  if (options_.gradients != GradientKind::sum && options_.gradients != GradientKind::mean) {
    throw invalid("the kind of gradients is neither sum nor mean");
  }
  if (options_.wire != DataType::f32 && options_.wire != DataType::bf16 && options_.wire != DataType::f16) {
    throw invalid(fmt::format("the wire type is {}; expected f32, bf16 or f16", to_string(options_.wire)));
  }
  std::vector<const StreamGradient*> order;
  for (const StreamGradient& gradient : gradients_) {
    if (gradient.count > 0 && gradient.values == nullptr) {
      throw invalid(fmt::format("gradient '{}' of {} floats has no memory", gradient.name, gradient.count));
    }
    if (gradient.count > 0) order.push_back(&gradient);
  }
  std::ranges::sort(order, std::less<const float*>(), [](const StreamGradient* g) { return g->values; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (std::less<const float*>()(order[i]->values, order[i - 1]->values + order[i - 1]->count)) {
      throw invalid(
          fmt::format("gradients '{}' and '{}' overlap in memory, so one would be reduced twice; "
                      "register shared gradients once",
                      order[i - 1]->name, order[i]->name));
    }
  }
}

void StreamReducer::agree() {
  std::vector<std::string> entries = {is_mean() ? "means" : "sums",
                                      fmt::format("bucket_bytes {}", options_.bucket_bytes),
                                      fmt::format("leave_sums {}", options_.leave_sums),
                                      fmt::format("micro_batches {}", options_.micro_batches),
                                      fmt::format("wire {}", to_string(options_.wire))};
  require_same_entries(context_, "DeviceGradientReducer", "option", entries);
  std::vector<std::string> described;
  for (const StreamGradient& gradient : gradients_) {
    described.push_back(fmt::format("'{}' of {} floats", gradient.name, gradient.count));
  }
  require_same_entries(context_, "DeviceGradientReducer", "gradient", described);
  entries.emplace_back("on devices");
  entries.insert(entries.end(), described.begin(), described.end());
  learned_.gradients = hash_of_entries(entries);
}

std::vector<BucketLayout> StreamReducer::layouts() const {
  std::vector<std::size_t> counts;
  for (const StreamGradient& gradient : gradients_) counts.push_back(gradient.count);
  const std::vector<std::size_t> order = is_learned() ? learned_.order : reverse_order(gradients_.size());
  return bucket_layout({.counts = counts,
                        .rows = {},
                        .order = order,
                        .bucket_count = std::max<std::size_t>(learned_.bucket_bytes / sizeof(float), 1),
                        .multiple = 1});
}

bool StreamReducer::lies_in_one_run(const BucketLayout& layout) const {
  const GradientPiece& first = layout.pieces.front();
  float* const begin = gradients_[first.gradient].values + first.first;
  std::size_t count = 0;
  for (const GradientPiece& piece : layout.pieces) {
    if (gradients_[piece.gradient].values + piece.first != begin + count) return false;
    count += piece.count;
  }
  return queue_.reaches(begin, count * sizeof(float));
}

void StreamReducer::make_buckets() {
  buckets_.clear();
  for (auto& buckets : buckets_of_) buckets.clear();
  for (BucketLayout& layout : layouts()) buckets_.push_back({.layout = std::move(layout)});
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    for (const GradientPiece& piece : bucket.layout.pieces) {
      auto& buckets = buckets_of_[piece.gradient];
      if (!buckets.empty() && buckets.back() == i) continue;
      buckets.push_back(i);
      ++bucket.gradients;
    }
    bucket.missing = bucket.gradients;
    bucket.on_device.count = bucket.layout.count();
    bucket.on_device.wire = wire_of(wire());
    bucket.is_packed = wire() != DataType::f32 || !lies_in_one_run(bucket.layout);
  }
  place_buckets();
  write_pieces();
}

/// Shared memory is allocated by all ranks alike, also by those that could do without.
void StreamReducer::place_buckets() {
  std::size_t wanted = 0;
  for (Bucket& bucket : buckets_) {
    if (bucket.is_packed) wanted += lines_of(bucket.on_device.count * size_of(wire()));
  }
  auto most = static_cast<std::int64_t>(wanted);
  context_.communicator().all_reduce(std::span(&most, 1), ReduceOp::max);
  if (static_cast<std::size_t>(most) > packed_bytes_) {
    packed_bytes_ = static_cast<std::size_t>(most);
    packed_ = queue_.allocate_shared(packed_bytes_);
  }
  std::size_t at = 0;
  for (Bucket& bucket : buckets_) {
    const GradientPiece& first = bucket.layout.pieces.front();
    bucket.on_device.values = gradients_[first.gradient].values + first.first;
    if (!bucket.is_packed) continue;
    bucket.on_device.values = packed_ + at;
    at += lines_of(bucket.on_device.count * size_of(wire()));
  }
}

DataType StreamReducer::wire() const noexcept { return context_.hosts() > 1 ? options_.wire : DataType::f32; }

/// Among all, in order of registration.
std::size_t StreamReducer::place_of(std::size_t gradient) const noexcept {
  std::size_t at = 0;
  for (std::size_t i = 0; i < gradient; ++i) at += gradients_[i].count;
  return at;
}

std::vector<StreamGradient> StreamReducer::residuals() const {
  std::vector<StreamGradient> result;
  for (std::size_t i = 0; residual_ != nullptr && i < gradients_.size(); ++i) {
    result.push_back({gradients_[i].name, residual_ + place_of(i), gradients_[i].count});
  }
  return result;
}

/// The tables that kernels go by, and room for the sums of squares.
void StreamReducer::write_pieces() {
  context_.on_all_ranks("device memory", [&] {
    std::vector<Piece> pieces;
    for (const Bucket& bucket : buckets_) {
      std::uint64_t at = 0;
      for (const GradientPiece& piece : bucket.layout.pieces) {
        const std::size_t place = place_of(piece.gradient) + piece.first;
        pieces.push_back({gradients_[piece.gradient].values + piece.first,
                          accumulated_ == nullptr ? nullptr : accumulated_ + place,
                          residual_ == nullptr ? nullptr : residual_ + place, at, at + piece.count});
        at += piece.count;
      }
    }
    if (pieces.size() > piece_room_) {
      piece_room_ = pieces.size();
      pieces_ = reinterpret_cast<Piece*>(queue_.allocate(piece_room_ * sizeof(Piece)));
    }
    if (!pieces.empty()) queue_.upload(pieces_, pieces.data(), pieces.size() * sizeof(Piece));
    const std::size_t squares = buckets_.size() * queue_.sums_of_unpacking();
    if (squares > square_room_) {
      square_room_ = squares;
      squares_ = reinterpret_cast<double*>(queue_.allocate(square_room_ * sizeof(double)));
    }
  });
  std::size_t at = 0;
  double* squares = squares_;
  for (Bucket& bucket : buckets_) {
    bucket.on_device.pieces = pieces_ + at;
    bucket.on_device.piece_count = static_cast<std::uint32_t>(bucket.layout.pieces.size());
    at += bucket.layout.pieces.size();
    bucket.squares = squares;
    squares += queue_.sums_of_unpacking();
  }
}

std::size_t StreamReducer::largest_bucket() const noexcept {
  std::size_t largest = 0;
  for (const Bucket& bucket : buckets_) largest = std::max<std::size_t>(largest, bucket.on_device.count);
  return largest * size_of(wire());
}

void StreamReducer::begin(double weight) {
  if (begun_) throw invalid("begin(weight) twice in a step; call finish() between");
  begun_ = true;
  weight_ = weight;
  // Buckets can become means during backward only if the total is known by then.
  if (!no_sync_) send_weight(weight);
}

/// A NaN among the weights tells every rank that one of them has a problem.
void StreamReducer::send_weight(double weight) {
  const bool is_good = std::isfinite(weight) && weight >= 0;
  if (!is_good && !kept_problem_) {
    kept_problem_ = invalid(fmt::format("the weight is {}; expected the number of items, 0 or more", weight));
  }
  queue_.set(weight_sum_, kept_problem_ ? std::numeric_limits<double>::quiet_NaN() : weight_before_ + weight);
  queue_.all_reduce(weight_sum_, 1, DataType::f64);
  has_sent_weight_ = true;
}

void StreamReducer::report(const char* name, std::size_t index, bool has_value) {
  if (index >= gradients_.size()) {
    throw invalid(fmt::format("{}({}): there are only {} gradients", name, index, gradients_.size()));
  }
  if (is_mean() && !begun_) {
    throw invalid(
        fmt::format("{}() before begin(weight): gradient means need their weight before backward", name));
  }
  if (!ledger_.report(index, has_value)) {
    throw invalid(fmt::format("{}({}): gradient '{}' was reported before in this step", name, index,
                              gradients_[index].name));
  }
  if (no_sync_) return;
  for (const std::size_t bucket : buckets_of_[index]) --buckets_[bucket].missing;
  start_complete();
}

void StreamReducer::ready(std::size_t index, Stream stream) {
  if (std::ranges::find(reported_on_, stream) == reported_on_.end()) reported_on_.push_back(stream);
  report("ready", index, true);
}

void StreamReducer::absent(std::size_t index) { report("absent", index, false); }

/// The queue waits once for each stream, for the last gradient of a bucket, and so for all of it.
void StreamReducer::follow_reports() {
  for (const Stream stream : reported_on_) queue_.follow(stream);
  reported_on_.clear();
}

void StreamReducer::start_complete() {
  while (started_ < buckets_.size() && buckets_[started_].missing == 0) start(buckets_[started_++]);
}

void StreamReducer::start(Bucket& bucket) {
  follow_reports();
  for (const GradientPiece& piece : bucket.layout.pieces) {
    const bool counts =
        is_mean() ? ledger_.has_value_now(piece.gradient) && weight_ != 0 : ledger_.has_value(piece.gradient);
    if (!counts) queue_.zero(gradients_[piece.gradient].values + piece.first, piece.count * sizeof(float));
  }
  const double own_weight = is_mean() ? weight_ : 1;
  if (bucket.is_packed || own_weight != 1 || has_accumulated_) {
    queue_.pack(bucket.on_device, own_weight, has_accumulated_);
  }
  queue_.all_reduce(bucket.on_device.values, bucket.on_device.count, wire());
  if (has_sent_weight_) unpack(bucket);
}

void StreamReducer::unpack(const Bucket& bucket) {
  const auto place = [&](int rank) {
    return bucket.on_device.count * static_cast<std::uint64_t>(rank) /
           static_cast<std::uint64_t>(context_.size());
  };
  queue_.unpack(bucket.on_device, {.weight = options_.leave_sums ? nullptr : weight_sum_,
                                   .own = {place(context_.rank()), place(context_.rank() + 1)},
                                   .sums_of_squares = exact_squares_ == nullptr ? bucket.squares : nullptr,
                                   .exact_squares = exact_squares_});
}

std::optional<Error> StreamReducer::problem() const {
  if (kept_problem_) return kept_problem_;
  if (const auto missing = ledger_.missing()) {
    return invalid(fmt::format(
        "finish: gradient {} ('{}') was not made ready in this step; call ready({}), or absent({}) if it has "
        "no value",
        *missing, gradients_[*missing].name, *missing, *missing));
  }
  return {};
}

void StreamReducer::finish(std::optional<double> weight, Stream stream) {
  if (weight && begun_) throw invalid("finish(weight) after begin(weight): give the weight once");
  if (weight && is_mean())
    throw invalid("finish(weight): gradient means need begin(weight), before backward");
  if (!weight && !begun_) throw invalid("finish() without begin(weight): the weight is not known");
  if (weight) weight_ = *weight;
  kept_problem_ = problem();
  if (no_sync_) return end_micro_batch(stream);
  while (started_ < buckets_.size()) start(buckets_[started_++]);
  if (!has_sent_weight_) {  // after all buckets: how many have been started differs between ranks
    send_weight(weight_);
    for (const Bucket& bucket : buckets_) unpack(bucket);
  }
  end_step(stream);
}

/// Over all ranks. What is not finite tells them of a problem: the weight may have been sent before it.
void StreamReducer::add_up_squares() {
  if (exact_squares_ != nullptr) {
    queue_.carry(exact_squares_, kept_problem_.has_value());
    queue_.all_reduce(exact_squares_, ExactSquares::numbers, DataType::i64);
    queue_.add_up(exact_squares_, square_sum_);
    return queue_.zero(exact_squares_, sizeof(ExactSquares));
  }
  if (kept_problem_) {
    queue_.set(square_sum_, std::numeric_limits<double>::quiet_NaN());
  } else {
    queue_.add_up(squares_, buckets_.size() * queue_.sums_of_unpacking(), square_sum_);
  }
  queue_.all_reduce(square_sum_, 1, DataType::f64);
}

void StreamReducer::end_step(Stream stream) {
  add_up_squares();
  queue_.conclude(weight_sum_, square_sum_, options_.leave_sums, outcome_);
  queue_.precede(stream);
  const bool learns = !is_learned() && !gradients_.empty();
  if (learns) {
    queue_.fetch(outcome_);  // no kernel of this rank waits for others any more
    learn();
  }
  const std::optional<Error> problem = std::exchange(kept_problem_, {});
  begun_ = false;
  weight_before_ = 0;
  has_sent_weight_ = false;
  has_accumulated_ = false;
  started_ = 0;
  ledger_.next_step();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.gradients;
  is_finished_ = true;
  if (problem) throw *problem;
}

void StreamReducer::end_micro_batch(Stream stream) {
  follow_reports();
  if (is_mean() && weight_ > 0 && std::isfinite(weight_)) {
    if (accumulated_ == nullptr) {
      throw invalid("no_sync() with gradient means needs memory for them; set micro_batches in the options");
    }
    if (!has_accumulated_) queue_.zero(accumulated_, bytes_);
    has_accumulated_ = true;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (!ledger_.has_value_now(i)) continue;
      queue_.add_scaled(accumulated_ + place_of(i), gradients_[i].values, gradients_[i].count, weight_);
    }
  }
  queue_.precede(stream);  // backward is about to write them again
  weight_before_ += weight_;
  begun_ = false;
  ledger_.next_micro_batch();
}

ReducedStep StreamReducer::result() {
  if (!is_finished_)
    throw invalid("result() before finish(): no step has been finished since the last result");
  is_finished_ = false;
  const gradient_pass::Outcome outcome = queue_.fetch(outcome_);
  if (outcome.weight == 0) {
    throw invalid(
        fmt::format("the total weight of all {} ranks is 0: no rank had any item in this step; skip "
                    "such steps on every rank",
                    context_.size()));
  }
  if (!std::isfinite(outcome.weight)) {
    throw invalid(
        fmt::format("the sum of the weights of all {} ranks is {}: some rank's weight is no number of items, "
                    "or it had another problem, which it reports itself",
                    context_.size(), outcome.weight));
  }
  return {.weight = outcome.weight,
          .scale = outcome.scale,
          .norm = outcome.norm,
          .finite = outcome.finite != 0,
          .bytes = bytes_ / sizeof(float) * size_of(wire())};
}

/// From the next step on, buckets go by the mean place of each gradient over all ranks.
void StreamReducer::learn() {
  learned_.order = learn_order(context_.communicator(), ledger_.order(), gradients_.size());
  make_buckets();
}

std::string StreamReducer::state() const {
  LearnedBuckets now = learned_;
  now.ranks = context_.size();
  return now.json();
}

void StreamReducer::restore(std::string_view json) {
  context_.on_all_ranks("DeviceGradientReducer::restore", [&] {
    LearnedBuckets state = LearnedBuckets::parse(json, gradients_.size());
    if (state.gradients != learned_.gradients) {
      throw Error(ErrorCode::mismatch,
                  "DeviceGradientReducer::restore: the state is one of other gradients (names, sizes, order) "
                  "or options; give the reducer those that it was saved with, or do without it");
    }
    learned_ = std::move(state);
  });
  require_same_entries(context_, "DeviceGradientReducer::restore", "state", {std::string(json)});
  make_buckets();
}

}  // namespace ddl
