#include "ddl/gradients/bucket_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/gradients/elementwise.hpp"

namespace ddl {

std::span<float> one_run(std::span<const std::span<float>> pieces) {
  std::size_t count = 0;
  for (const std::span<float> piece : pieces) {
    if (piece.data() != pieces.front().data() + count) return {};
    count += piece.size();
  }
  return {pieces.front().data(), count};
}

BucketSet::BucketSet(Context& context, ReducerWays& ways, GradientWatch& watch, Settings settings,
                     std::vector<BucketLayout> layouts)
    : context_(context),
      ways_(ways),
      watch_(watch),
      settings_(settings),
      buckets_of_(settings.gradients.size()) {
  const bool staged = settings.wire != DataType::f32 ||
                      std::ranges::any_of(layouts, [](const BucketLayout& layout) { return layout.rows; });
  if (staged) events_ = std::make_shared<WorkEvents>();
  buckets_.reserve(layouts.size());
  for (BucketLayout& layout : layouts) {
    buckets_.push_back({.layout = std::move(layout), .values = {}, .packed = {}, .parameters = {}});
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    for (const GradientPiece& piece : bucket.layout.pieces) {
      auto& buckets = buckets_of_[piece.gradient];
      if (!buckets.empty() && buckets.back() == i) continue;
      buckets.push_back(i);
      ++bucket.gradients;
    }
    place(bucket);
    choose_reduction(bucket);
  }
  next_step();
}

std::span<float> BucketSet::gradient(const GradientPiece& piece) const {
  return settings_.gradients[piece.gradient].values.subspan(piece.first, piece.count);
}

void BucketSet::place(Bucket& bucket) const {
  std::vector<std::span<float>> pieces;
  for (const GradientPiece& piece : bucket.layout.pieces) pieces.push_back(gradient(piece));
  if (bucket.layout.padding == 0) bucket.values = one_run(pieces);
  if (!bucket.values.empty()) return;
  bucket.packed = allocate<float>(context_, bucket.layout.count());
  bucket.values = bucket.packed.span();
}

void BucketSet::choose_reduction(Bucket& bucket) {
  Communicator& all = context_.communicator();
  if (bucket.layout.rows) {
    const std::size_t index = bucket.layout.pieces.front().gradient;
    bucket.reduction =
        rows_reduction(context_, *ways_.rows, bucket.values, settings_.gradients[index].row_width,
                       settings_.touched[index], rows_order_, rows_buckets_++, events_);
  } else if (settings_.wire != DataType::f32) {
    HostHierarchy& hierarchy = *ways_.hierarchy;
    const std::size_t shards = hierarchy.has_shard() ? static_cast<std::size_t>(hierarchy.shards) : 0;
    bucket.residual = std::make_unique<WireResidual>(shards == 0 ? 0 : bucket.values.size() / shards);
    bucket.reduction = wire_reduction(all, hierarchy, settings_.wire, bucket.values, *bucket.residual,
                                      wire_order_, wire_buckets_++, events_);
  } else if (settings_.sharded) {
    bucket.reduction = sharded_reduction(all, bucket.values, events_);
  } else {
    // What is alone has nothing to overlap with.
    const bool blocking = buckets_.size() == 1;
    bucket.reduction = dense_reduction(all, bucket.values, blocking, events_);
  }
}

std::vector<std::string> BucketSet::plans() const {
  std::vector<std::string> plans;
  for (const Bucket& bucket : buckets_) plans.push_back(bucket.reduction->plans());
  return plans;
}

std::size_t BucketSet::largest() const noexcept {
  std::size_t largest = 0;
  for (const Bucket& bucket : buckets_) {
    if (!bucket.layout.rows) largest = std::max(largest, bucket.values.size());
  }
  return largest;
}

std::string BucketSet::name(std::size_t bucket) const {
  const auto& pieces = buckets_[bucket].layout.pieces;
  const std::string& first = settings_.gradients[pieces.front().gradient].name;
  const std::string& last = settings_.gradients[pieces.back().gradient].name;
  return fmt::format("bucket {} of {} ({})", bucket + 1, size(),
                     buckets_[bucket].gradients == 1 ? fmt::format("gradient '{}'", first)
                                                     : fmt::format("gradients '{}' to '{}'", first, last));
}

void BucketSet::report(std::size_t gradient) noexcept {
  for (const std::size_t bucket : buckets_of_[gradient]) --buckets_[bucket].missing;
}

void BucketSet::start_complete(const Fill& fill) {
  while (started_ < size() && buckets_[started_].missing == 0) start(started_++, fill);
  if (events_ || !context_.has_progress_thread()) advance(finished_);
}

void BucketSet::start_all(const Fill& fill) {
  while (started_ < size()) start(started_++, fill);
}

void BucketSet::start(std::size_t index, const Fill& fill) {
  Bucket& bucket = buckets_[index];
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.layout.pieces) {
    fill(piece, bucket.values.subspan(at, piece.count));
    at += piece.count;
  }
  std::ranges::fill(bucket.values.subspan(at), 0.0f);
  if (watch_.wants_buckets()) watch_.queued(name(index), bucket.values.size_bytes());
  bucket.reduction->start();
}

/// In order: no bucket can enter a stage before those before it have.
void BucketSet::advance(std::size_t first) {
  for (std::size_t i = first; i < started_; ++i) static_cast<void>(buckets_[i].reduction->advance());
}

void BucketSet::wait_for(std::size_t bucket) {
  BucketReduction& reduction = *buckets_[bucket].reduction;
  if (!events_ || !context_.has_progress_thread()) {
    while (!reduction.advance()) reduction.wait();
    return;
  }
  for (std::uint64_t seen = events_->seen(); !reduction.advance(); seen = events_->seen()) {
    advance(bucket + 1);
    const auto counted = watch_.counted_wait();
    events_->wait_beyond(seen);
  }
}

void BucketSet::finish_done(double factor, GradientNorm& norm) {
  for (; finished_ < started_ && buckets_[finished_].reduction->advance(); ++finished_) {
    finish(buckets_[finished_], factor, norm);
  }
}

void BucketSet::finish_all(double factor, GradientNorm& norm) {
  for (; finished_ < size(); ++finished_) {
    wait_for(finished_);
    finish(buckets_[finished_], factor, norm);
  }
}

void BucketSet::finish(const Bucket& bucket, double factor, GradientNorm& norm) const {
  const bool in_place = bucket.packed.size() == 0;
  bucket.reduction->finish(in_place ? factor : 1.0, norm);
  if (!in_place) unpack(bucket, factor);
}

void BucketSet::drain() {
  for (std::size_t i = 0; i < started_; ++i) wait_for(i);
}

std::optional<std::size_t> BucketSet::unfinished() noexcept {
  for (std::size_t i = 0; i < started_; ++i) {
    try {
      if (!buckets_[i].reduction->advance()) return i;
    } catch (const Error&) {
      return i;
    }
  }
  return {};
}

void BucketSet::unpack(const Bucket& bucket, double factor) const {
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.layout.pieces) {
    elementwise::scale_into(gradient(piece), bucket.values.subspan(at, piece.count), factor);
    at += piece.count;
  }
}

void BucketSet::settle(bool finite) {
  for (const Bucket& bucket : buckets_) bucket.reduction->settle(finite);
}

void BucketSet::next_step() noexcept {
  started_ = 0;
  finished_ = 0;
  wire_order_.clear();
  rows_order_.clear();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.gradients;
}

std::uint64_t BucketSet::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Bucket& bucket : buckets_) sum += bucket.reduction->bytes();
  return sum;
}

std::vector<NamedTensor> BucketSet::residuals() {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < size(); ++i) {
    if (!buckets_[i].residual || buckets_[i].residual->kept().empty()) continue;
    const std::span<float> kept = buckets_[i].residual->kept();
    tensors.push_back({fmt::format("residual/{}", i),
                       DataType::f32,
                       {static_cast<std::int64_t>(kept.size())},
                       std::as_writable_bytes(kept)});
  }
  return tensors;
}

}  // namespace ddl
