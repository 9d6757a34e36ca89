#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/gradients/elementwise.hpp"
#include "ddl/gradients/gradient_pass.hpp"
#include "ddl/gradients/gradient_queue.hpp"
#include "ddl/shared_buffer.hpp"
#include "ddl/work.hpp"

namespace ddl {

/// The Euclidean norm of values that are distributed over ranks. Each value is added by one rank. Not
/// thread-safe.
class GradientNorm {
 public:
  /// `exact`: the result has the same bits whatever the parts, order and ranks in which values are added, and
  /// costs about 2 ns per value. Else it costs one pass at the speed of memory, and its bits depend on the
  /// parts.
  explicit GradientNorm(bool exact) : exact_(exact) {}

  void clear() noexcept {
    sum_ = 0;
    squares_ = {};
  }
  /// Adds values of a floating type. An exact norm rounds f64 values to f32.
  void add(ConstElements values) noexcept {
    if (!exact_) {
      sum_ += elementwise::sum_of_squares(values);
    } else if (values.type() == DataType::f64) {
      add_exactly(static_cast<const double*>(values.data()), values.size());
    } else if (values.type() == DataType::f32) {
      add_exactly(static_cast<const float*>(values.data()), values.size());
    } else {
      elementwise::in_blocks(values, [&](std::size_t, std::span<const float> block) {
        add_exactly(block.data(), block.size());
      });
    }
  }
  /// Adds a value that is not finite.
  void add_overflow() noexcept {
    sum_ = std::numeric_limits<double>::infinity();
    ++squares_.not_finite;
  }
  /// Adds `values`, and then multiplies them in place by `factor`. One pass over memory. What overflows 16
  /// bits counts as not finite.
  void add_and_scale(Elements values, double factor) noexcept {
    if (factor == 1) return add(values);
    if (!exact_ && (values.type() == DataType::f32 || values.type() == DataType::f64)) {
      sum_ += elementwise::square_and_scale(values, factor);
      return;
    }
    constexpr std::size_t block = 4096;  // fits the L1 cache
    for (std::size_t at = 0; at < values.size(); at += block) {
      const Elements part = values.subspan(at, std::min(block, values.size() - at));
      add(part);
      if (!elementwise::scale(part, factor)) add_overflow();
    }
  }
  /// The norm over all ranks, the same on each; not finite if a value is not. The same all-reduce replaces
  /// `counts` by their sums over all ranks. Collective.
  [[nodiscard]] double over_all(Communicator& communicator, std::span<double> counts = {}) {
    sums_.assign(counts.begin(), counts.end());
    sums_.push_back(sum_);
    communicator.all_reduce(std::span(sums_));
    std::copy_n(sums_.begin(), counts.size(), counts.begin());
    return exact_ ? exact_over_all(communicator) : std::sqrt(sums_.back());
  }

 private:
  template <typename Float>
  void add_exactly(const Float* values, std::size_t count) noexcept {
    SquareCollector collector;
    const AddInTurn add{squares_};
    for (std::size_t i = 0; i < count; ++i) collector.collect(static_cast<float>(values[i]), add);
    collector.flush(add);
    carry(squares_);  // so that neither later sums nor the one over 2^31 ranks can overflow
  }
  [[nodiscard]] double exact_over_all(Communicator& communicator) const {
    ExactSquares squares = squares_;
    communicator.all_reduce(&squares, ExactSquares::numbers, DataType::i64, ReduceOp::sum);
    carry(squares);
    return std::sqrt(value_of(squares));
  }

  bool exact_;
  double sum_ = 0;
  std::vector<double> sums_;  // scratch of over_all
  ExactSquares squares_ = {};
};

/// Reduces gradients in the host's memory by asynchronous collectives; adjacent gradients in place.
class HostQueue final : public GradientQueue {
 public:
  explicit HostQueue(const Context& context)
      : context_(context),
        all_(context.communicator()),
        rank_(static_cast<std::size_t>(context.rank())),
        ranks_(static_cast<std::size_t>(context.size())),
        norm_(context.options().reproducible) {}

  [[nodiscard]] bool is_on_device() const noexcept override { return false; }

  void open(const ReducerParts& parts) override {
    parts_.emplace(parts);
    for (const Gradient& gradient : parts.gradients) {
      places_.push_back(accumulated_bytes_);
      const std::size_t bytes = gradient.values.size() * size_of(summed_type(gradient.values.type()));
      accumulated_bytes_ += (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
      if (gradient.row_width > 0 && !rows_) rows_.emplace(all_.split(0));
    }
    if (parts.options.wire != DataType::f32 && context_.hosts() > 1) wire_ = parts.options.wire;
  }
  std::size_t bucket_bytes(std::size_t total) override;
  void arrange(const std::vector<BucketLayout>& layouts, bool is_final) override;
  void rebind() override {
    for (Bucket& bucket : buckets_) place(bucket);
  }
  [[nodiscard]] std::vector<std::string> plans() const override;

  void accumulate(std::size_t gradient, double weight) override {
    accumulated_.resize(accumulated_bytes_);
    const Elements values = parts_->gradients[gradient].values;
    elementwise::add_scaled(accumulated({gradient, 0, values.size()}), values, weight);
  }
  void start_weight(double own, bool blocking) override {
    total_ = own;
    weight_sum_ = Work();
    if (blocking) return all_.all_reduce(std::span(&total_, 1));
    weight_sum_ = all_.all_reduce_async(std::span(&total_, 1));
  }
  [[nodiscard]] bool has_weight() override {
    return weight_sum_.test() && std::isfinite(total_) && total_ > 0;
  }
  [[nodiscard]] double total_weight() override {
    weight_sum_.wait();
    return total_;
  }

  void reduce(std::size_t index, const Contribution& contribution) override;
  void advance() override {
    if (works_done_ || !context_.has_progress_thread()) advance_from(finished_);
  }
  [[nodiscard]] bool is_reduced(std::size_t bucket) override { return advance(buckets_[bucket]); }
  void wait(std::size_t bucket) override;
  void unpack(std::size_t bucket) override;
  void conclude(bool has_problem, std::size_t missing) override;
  StepOutcome fetch() override { return outcome_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept override;
  [[nodiscard]] std::size_t packed_bytes() const noexcept override;
  void settle(bool counts) override {
    for (Bucket& bucket : buckets_) bucket.residual.settle(counts);
  }
  void next_step() noexcept override {
    started_ = finished_ = 0;
    norm_.clear();
    std::ranges::fill(accumulated_, std::byte{0});
  }

  [[nodiscard]] std::optional<std::size_t> unfinished() noexcept override;
  [[nodiscard]] bool is_busy() noexcept override {
    try {
      return !weight_sum_.test() || unfinished();
    } catch (const Error&) {
      return true;
    }
  }
  void drain() noexcept override;
  void gather(std::span<const Parameter> parameters, Stream stream) override;
  [[nodiscard]] std::vector<NamedTensor> residuals() override {
    return residual_tensors(buckets_, [](Bucket& bucket) { return std::span(bucket.residual.kept); });
  }

 private:
  enum class Way { dense, scatter, rows };

  /// The rounding errors of a bucket with a 16-bit wire, which the next step adds.
  struct Residual {
    std::vector<float> kept;
    std::vector<float> left;

    /// Keeps the errors of this step if it counts; else those of the step before remain.
    void settle(bool counts) noexcept {
      if (counts) kept.swap(left);
    }
  };

  struct Bucket {
    BucketLayout layout;
    Way way = Way::dense;
    Elements values;                     // the elements to reduce: the gradients themselves, or in `packed`
    SharedBuffer<std::byte> packed;      // for gradients that cannot be reduced in place
    SharedBuffer<std::byte> parameters;  // for `gather` of parameters that are not adjacent
    std::vector<GradientPiece> pieces;   // the pieces to reduce: the layout's, or the touched rows
    Work work;
    std::optional<DataType> wire;
    Residual residual;
    // Only for rows:
    Bucket* before = nullptr;  // the previous bucket with rows
    bool awaits_map = false;   // `work` is the exchange of the map, after which the rows are reduced
    double weight = 1;
    bool adds_accumulated = false;

    [[nodiscard]] topology::Collective collective() const noexcept {
      return way == Way::scatter ? topology::Collective::reduce_scatter : topology::Collective::all_reduce;
    }
  };

  [[nodiscard]] Elements gradient(const GradientPiece& piece) const {
    return parts_->gradients[piece.gradient].values.subspan(piece.first, piece.count);
  }
  /// The weighted means that earlier micro-batches accumulated, in f32 for 16-bit gradients.
  [[nodiscard]] Elements accumulated(const GradientPiece& piece) {
    const DataType type = summed_type(parts_->gradients[piece.gradient].values.type());
    return {&accumulated_[places_[piece.gradient] + piece.first * size_of(type)], piece.count, type};
  }
  [[nodiscard]] static bool is_in_place(const Bucket& bucket) {
    return bucket.packed.size() == 0 || bucket.values.data() != bucket.packed.data();
  }
  [[nodiscard]] Elements own(Elements values) const {
    return values.subspan(rank_ * (values.size() / ranks_), values.size() / ranks_);
  }
  /// Chooses where the bucket is reduced.
  void place(Bucket& bucket) const {
    bucket.values = one_run(bucket.layout, parts_->gradients);
    if (bucket.values.size() == 0) bucket.values = packed(bucket, bucket.layout.count());
  }
  /// The bucket's packing memory for `count` elements; allocates room for `spare` more if it must grow.
  [[nodiscard]] Elements packed(Bucket& bucket, std::size_t count, std::size_t spare = 0) const;
  void pack(const GradientPiece& piece, Elements target, bool counts, double weight, bool adds_accumulated);
  void start_rows(Bucket& bucket, const Contribution& contribution);
  void reduce_rows(Bucket& bucket);
  void follow(Bucket& bucket, Work work) const;
  bool advance(Bucket& bucket);
  void advance_from(std::size_t first);
  void finish(Elements part, std::size_t at, const gradient_pass::Range& own, double factor, bool all);

  Context context_;
  Communicator& all_;
  const std::size_t rank_, ranks_;
  std::optional<ReducerParts> parts_;
  std::size_t accumulated_bytes_ = 0;
  std::vector<std::size_t> places_;  // of each gradient in `accumulated_`
  std::optional<Communicator> rows_;
  std::optional<DataType> wire_;
  /// The number of completed works, for waiting until any of them completes; continuations own it. Null if no
  /// bucket has rows.
  std::shared_ptr<std::atomic<std::uint64_t>> works_done_;
  std::vector<Bucket> buckets_;
  std::size_t started_ = 0, finished_ = 0;
  std::vector<std::byte> accumulated_;
  double total_ = 0;  // this rank's weight, then the sum of all ranks' weights
  Work weight_sum_;
  GradientNorm norm_;
  StepOutcome outcome_;
};

}  // namespace ddl
