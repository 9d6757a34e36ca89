#include "ddl/gradients/host_queue.hpp"

#include <array>
#include <utility>

#include "ddl/context/context_state.hpp"

namespace ddl {

using gradient_pass::Range;

namespace {

/// This rank's slice of `count` elements. The slices of all ranks cover them; the first slices may have one
/// element more than the others.
Range slice_of(std::size_t count, std::size_t rank, std::size_t ranks) noexcept {
  const std::size_t whole = count / ranks;
  const std::size_t longer = count % ranks;
  const std::size_t first = rank * whole + std::min(rank, longer);
  return {first, first + whole + (rank < longer ? 1 : 0)};
}

void zero(Elements values) noexcept { std::ranges::fill(values.bytes(), std::byte{0}); }

}  // namespace

// Set-up.

std::size_t HostQueue::bucket_bytes(std::size_t total) {
  // One rank has no communication to hide, but turns each complete bucket into means: this size is still in
  // the cache after backward has written it.
  constexpr std::size_t near_bytes = std::size_t{64} << 10;
  if (context_.size() == 1) return near_bytes;
  return least_exposed_bytes(total, host_bucket_us, [&](std::size_t bytes) {
    return context_.communicator().plan(topology::Collective::all_reduce, bytes, DataType::f32);
  });
}

void HostQueue::arrange(const std::vector<BucketLayout>& layouts, bool is_final) {
  buckets_.clear();
  buckets_.reserve(layouts.size());
  works_done_.reset();
  Bucket* last_of_rows = nullptr;
  for (const BucketLayout& layout : layouts) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.layout = layout;
    bucket.pieces = layout.pieces;
    bucket.way = layout.rows ? Way::rows : parts_->options.sharded_update ? Way::scatter : Way::dense;
    place(bucket);
    if (bucket.way == Way::rows) {
      bucket.before = std::exchange(last_of_rows, &bucket);
      if (!works_done_) works_done_ = std::make_shared<std::atomic<std::uint64_t>>(0);
    }
    // Rounding errors belong to a bucket, so none are kept before the layout is final.
    if (is_final && bucket.way != Way::rows && layout.type == DataType::f32) bucket.wire = wire_;
    if (bucket.wire) {
      const std::size_t pieces = bucket.way == Way::scatter ? ranks_ : 1;
      const std::size_t size = all_.residual_size(bucket.collective(), layout.count() / pieces, *wire_);
      bucket.residual = {std::vector<float>(size), std::vector<float>(size)};
    }
  }
}

std::vector<std::string> HostQueue::plans() const {
  std::vector<std::string> plans;
  for (const Bucket& bucket : buckets_) {
    // For rows: the plan for all rows; fewer touched rows may use the plan of a smaller size.
    const Communicator& of = bucket.way == Way::rows ? *rows_ : all_;
    plans.push_back(
        plan_text(of, bucket.collective(), bucket.layout.count(), bucket.layout.type, bucket.wire));
  }
  return plans;
}

// Sums.

void HostQueue::reduce(std::size_t index, const Contribution& contribution) {
  Bucket& bucket = buckets_[index];
  started_ = index + 1;
  bucket.work = Work();
  if (bucket.way == Way::rows) return start_rows(bucket, contribution);
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.pieces) {
    pack(piece, bucket.values.subspan(at, piece.count), contribution.counts(piece.gradient),
         contribution.weight, contribution.adds_accumulated);
    at += piece.count;
  }
  zero(bucket.values.subspan(at, bucket.values.size() - at));
  const Elements mine = bucket.way == Way::scatter ? own(bucket.values) : bucket.values;
  if (bucket.wire) {
    const Wire wire{*bucket.wire, bucket.residual.kept, bucket.residual.left};
    const std::span<float> values = bucket.values.as<float>();
    follow(bucket, bucket.way == Way::scatter
                       ? all_.reduce_scatter_async(values.data(), mine.as<float>().data(), mine.size(), wire)
                       : all_.all_reduce_async(values, wire));
  } else if (bucket.way == Way::scatter) {
    follow(bucket, all_.reduce_scatter_async(bucket.values.data(), mine.data(), mine.size(), mine.type(),
                                             ReduceOp::sum));
  } else if (ranks_ > 1 && buckets_.size() == 1) {
    all_.all_reduce(mine);
  } else if (ranks_ > 1) {
    follow(bucket, all_.all_reduce_async(mine));
  }
}

Elements HostQueue::packed(Bucket& bucket, std::size_t count, std::size_t spare) const {
  const std::size_t size = size_of(bucket.layout.type);
  if (bucket.packed.size() < count * size) {
    bucket.packed = allocate<std::byte>(context_, (count + spare) * size);
  }
  return {bucket.packed.data(), count, bucket.layout.type};
}

void HostQueue::pack(const GradientPiece& piece, Elements target, bool counts, double weight,
                     bool adds_accumulated) {
  const Elements source = gradient(piece);
  const bool adds = adds_accumulated && !accumulated_.empty();
  if (adds && is_narrow(target.type())) {
    // So that micro-batches are rounded once.
    if (counts) elementwise::add_scaled(accumulated(piece), source, weight);
    elementwise::scale_into(target, accumulated(piece), 1);
    return;
  }
  if (!counts) {
    zero(target);
  } else if (source.data() != target.data() || weight != 1) {
    elementwise::scale_into(target, source, weight);
  }
  if (adds) elementwise::add_scaled(target, accumulated(piece), 1.0);
}

void HostQueue::start_rows(Bucket& bucket, const Contribution& contribution) {
  const GradientPiece& whole = bucket.layout.pieces.front();
  const bool counts = contribution.counts(whole.gradient);
  if (!counts) zero(gradient(whole));
  bucket.weight = counts ? contribution.weight : 1;
  bucket.adds_accumulated = contribution.adds_accumulated;
  bucket.awaits_map = true;
  follow(bucket, parts_->touched[whole.gradient].exchange(all_));
}

/// Starts the reduction of the touched rows, once the map of all ranks' touched rows is complete. Other rows
/// are zeros.
void HostQueue::reduce_rows(Bucket& bucket) {
  const collectives::CallsFor purpose(collectives::CallPurpose::bucket);
  const GradientPiece& whole = bucket.layout.pieces.front();
  TouchedRows& touched = parts_->touched[whole.gradient];
  touched.set_all();
  const bool alone = touched.travel_alone(context_);
  const bool in_place = !alone && gradient(whole).type() == bucket.layout.type;
  // In place, the rows that this rank did not touch are zeros already.
  bucket.pieces = alone || in_place ? touched.pieces(whole.gradient) : bucket.layout.pieces;
  if (in_place) {
    bucket.values = gradient(whole);
  } else {
    std::size_t count = 0;
    for (const GradientPiece& piece : bucket.pieces) count += piece.count;
    bucket.values = packed(bucket, count, count / 4);
  }
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.pieces) {
    const Elements target = in_place ? gradient(piece) : bucket.values.subspan(at, piece.count);
    pack(piece, target, true, bucket.weight, bucket.adds_accumulated);
    at += piece.count;
  }
  if (ranks_ > 1 && bucket.values.size() > 0) follow(bucket, rows_->all_reduce_async(bucket.values));
}

void HostQueue::follow(Bucket& bucket, Work work) const {
  if (works_done_) {
    work.then([done = works_done_](const Error*) {
      done->fetch_add(1);
      done->notify_all();
    });
  }
  bucket.work = std::move(work);
}

/// Starts the bucket's next stage if it can; returns whether the bucket is complete. Buckets with rows start
/// their reductions in order, whichever map is complete first, because the calls of a communicator must have
/// the same order on all ranks.
bool HostQueue::advance(Bucket& bucket) {
  if (!bucket.work.test()) return false;
  if (!bucket.awaits_map) return true;
  if (bucket.before != nullptr && bucket.before->awaits_map) return false;
  bucket.awaits_map = false;
  bucket.work = Work();
  reduce_rows(bucket);
  return bucket.work.test();
}

void HostQueue::advance_from(std::size_t first) {
  for (std::size_t i = first; i < started_; ++i) static_cast<void>(advance(buckets_[i]));
}

void HostQueue::wait(std::size_t index) {
  Bucket& bucket = buckets_[index];
  if (!works_done_ || !context_.has_progress_thread()) {
    while (!advance(bucket)) bucket.work.wait();
    return;
  }
  RunObserver* const observer = observer_of(context_);
  for (std::uint64_t done = *works_done_; !advance(bucket); done = *works_done_) {
    advance_from(index + 1);
    const collectives::CountedWait counted(observer == nullptr ? nullptr : observer->recorder().get());
    works_done_->wait(done);
  }
}

std::optional<std::size_t> HostQueue::unfinished() noexcept {
  for (std::size_t i = 0; i < started_; ++i) {
    try {
      if (!advance(buckets_[i])) return i;
    } catch (const Error&) {
      return i;
    }
  }
  return {};
}

void HostQueue::drain() noexcept {
  const auto ignoring_errors = [](const auto& wait) {
    try {
      wait();
    } catch (const std::exception&) {  // calls that wait for results throw it too
    }
  };
  ignoring_errors([&] { weight_sum_.wait(); });
  for (std::size_t i = 0; i < started_; ++i) ignoring_errors([&] { wait(i); });
}

// Results.

void HostQueue::unpack(std::size_t index) {
  Bucket& bucket = buckets_[index];
  finished_ = index + 1;
  const double factor = parts_->options.leave_sums ? 1.0 : 1.0 / total_;
  std::size_t count = bucket.values.size();
  if (bucket.way == Way::rows) {
    count = 0;
    for (const GradientPiece& piece : bucket.pieces) count += piece.count;
  }
  const Range own = slice_of(count, rank_, ranks_);
  const bool in_place = is_in_place(bucket);
  if (in_place && bucket.way != Way::rows) {
    return finish(bucket.values, 0, own, factor, bucket.way != Way::scatter);
  }
  if (!in_place) norm_.add(bucket.values.subspan(own.first, own.beyond - own.first));
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.pieces) {
    if (in_place) {
      finish(gradient(piece), at, own, factor, true);
    } else if (!elementwise::scale_into(gradient(piece), bucket.values.subspan(at, piece.count), factor)) {
      norm_.add_overflow();
    }
    at += piece.count;
  }
}

/// Finishes a `part` that begins at element `at` of its bucket: elements in `own` are added to the norm and
/// become means; the others become means too if `all`.
void HostQueue::finish(Elements part, std::size_t at, const Range& own, double factor, bool all) {
  const std::size_t first = std::clamp(own.first, at, at + part.size()) - at;
  const std::size_t end = std::clamp(own.beyond, at, at + part.size()) - at;
  norm_.add_and_scale(part.subspan(first, end - first), factor);
  if (factor == 1 || !all) return;
  elementwise::scale(part.first(first), factor);
  elementwise::scale(part.subspan(end, part.size() - end), factor);
}

void HostQueue::conclude(bool has_problem, std::size_t missing) {
  std::array<double, 2> counts = {has_problem ? 1.0 : 0.0, static_cast<double>(missing)};
  const double norm = norm_.over_all(all_, counts) / total_;
  outcome_ = {{total_, parts_->options.leave_sums ? 1.0 / total_ : 1.0, norm, std::isfinite(norm)},
              counts[0],
              counts[1]};
}

std::uint64_t HostQueue::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.way == Way::rows) sum += parts_->touched[bucket.layout.pieces.front().gradient].rows();
    sum += bucket.values.size() * size_of(bucket.wire.value_or(bucket.layout.type));
  }
  return sum;
}

std::size_t HostQueue::packed_bytes() const noexcept {
  std::size_t sum = 0;
  for (const Bucket& bucket : buckets_) sum += bucket.packed.size() + bucket.parameters.size();
  return sum;
}

void HostQueue::gather(std::span<const Parameter> parameters, Stream /*stream*/) {
  std::vector<Elements> gathered;
  std::vector<Work> works;
  // Copies parameters to a bucket's memory, where they are adjacent, or back.
  const auto copy = [&](const Bucket& bucket, Elements memory, bool back) {
    std::size_t at = 0;
    for (const GradientPiece& piece : bucket.layout.pieces) {
      const Elements values = parameters[piece.gradient].values.subspan(piece.first, piece.count);
      const Elements packed = memory.subspan(at, piece.count);
      back ? elementwise::scale_into(values, packed, 1) : elementwise::scale_into(packed, values, 1);
      at += piece.count;
    }
  };
  for (Bucket& bucket : buckets_) {
    const BucketLayout layout = layout_of_parameters(bucket.layout);
    Elements values = one_run(layout, parameters);
    if (values.size() == 0) {
      const std::size_t bytes = layout.bytes();
      SharedBuffer<std::byte>& memory = bucket.packed.size() >= bytes ? bucket.packed : bucket.parameters;
      if (memory.size() == 0) memory = allocate<std::byte>(context_, bytes);
      values = {memory.data(), layout.count(), layout.type};
      copy(bucket, values, false);
    }
    const Elements mine = own(values);
    works.push_back(all_.all_gather_async(mine.data(), values.data(), mine.size(), mine.type()));
    gathered.push_back(values);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    works[i].wait();
    if (one_run(layout_of_parameters(buckets_[i].layout), parameters).size() == 0)
      copy(buckets_[i], gathered[i], true);
  }
}

}  // namespace ddl
