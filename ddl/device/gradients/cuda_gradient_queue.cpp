#include "ddl/device/gradients/cuda_gradient_queue.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/device/cuda_check.hpp"
#include "ddl/device/device_timeline.hpp"
#include "ddl/device/gradients/gradient_kernels.hpp"
#include "ddl/gradients/reducer.hpp"

namespace ddl {

using gradient_pass::Piece;
using gradient_pass::Range;
using topology::Collective;

void CudaGradientQueue::follow_reported() {
  for (const Stream stream : std::exchange(reported_on_, {})) device::join(stream, stream_.get(), event_);
}

void CudaGradientQueue::precede(Stream stream) {
  follow_reported();
  device::join(stream_.get(), stream, event_);
}

bool CudaGradientQueue::can_be_captured() const {
  const auto can_be = [&](Collective collective, std::size_t count, DataType type,
                          std::optional<DataType> wire = {}) {
    return ranks() == 1 || count == 0 ||
           communicator_.can_be_captured(collective, count * size_of(type), type, wire);
  };
  const auto bucket_can_be = [&](const Bucket& bucket) {
    const Collective collective = scatters(bucket) ? Collective::reduce_scatter : Collective::all_reduce;
    return !bucket.layout.rows && can_be(collective, bucket.layout.count(), bucket.layout.type, wire(bucket));
  };
  return can_be(Collective::all_reduce, 1, DataType::f64) &&
         (exact_squares_ == nullptr ||
          can_be(Collective::all_reduce, ExactSquares::numbers, DataType::i64)) &&
         std::ranges::all_of(buckets_, bucket_can_be);
}

/// Remembers each stream once, because waiting for it covers all gradients that it has reported.
void CudaGradientQueue::ready_on(Stream stream) {
  if (std::ranges::find(reported_on_, stream) == reported_on_.end()) reported_on_.push_back(stream);
}

void CudaGradientQueue::zero(void* data, std::size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemsetAsync(data, 0, bytes, stream_.get()), "cudaMemsetAsync");
}

void CudaGradientQueue::accumulate(std::size_t gradient, double weight) {
  if (accumulated_ == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "GradientReducer: no_sync() with gradient means needs memory for them; set micro_batches in "
                "the options");
  }
  follow_reported();
  if (!has_accumulated_) {
    const std::size_t elements = places_.back() + parts_->gradients.back().values.size();
    zero(accumulated_, elements * sizeof(float));
  }
  has_accumulated_ = true;
  const Elements values = parts_->gradients[gradient].values;
  gradient_pass::launch_add_scaled(accumulated_ + places_[gradient], values.data(), values.type(),
                                   values.size(), weight, stream_.get());
}

void CudaGradientQueue::send_weight() {
  if (!weight_) return;
  follow_reported();
  gradient_pass::launch_set(weight_sum_, *std::exchange(weight_, {}), stream_.get());
  all_reduce(weight_sum_, 1, DataType::f64);
}

void CudaGradientQueue::start_weight(double before, const double* given) {
  follow_reported();
  gradient_pass::launch_take_weight(weight_sum_, before, given, stream_.get());
  all_reduce(weight_sum_, 1, DataType::f64);
}

void CudaGradientQueue::all_reduce(void* data, std::size_t count, DataType type) {
  if (ranks() == 1 || count == 0) return;
  communicator_.all_reduce(data, data, count, type, ReduceOp::sum, stream_.get());
}

void CudaGradientQueue::pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated) {
  const std::size_t bytes = bucket.count * size_of(bucket.type);
  const device::NvtxRange range("pack", bytes);
  const auto scope = communicator_.scope("pack", stream_.get(), bytes);
  gradient_pass::launch_pack(bucket, weight, adds_accumulated, stream_.get());
}

void CudaGradientQueue::reduce(std::size_t index, const Contribution& contribution) {
  Bucket& bucket = buckets_[index];
  follow_reported();
  send_weight();
  for (const GradientPiece& piece : bucket.layout.pieces) {
    if (contribution.counts(piece.gradient)) continue;
    const Elements values = parts_->gradients[piece.gradient].values.subspan(piece.first, piece.count);
    zero(values.data(), values.bytes().size());
  }
  if (bucket.layout.rows) {
    bucket.weight = contribution.weight;
    bucket.exchange = touched(bucket).exchange(parts_->context.communicator());
    return;
  }
  const gradient_pass::Bucket& on_device = bucket.on_device;
  if (bucket.is_packed || contribution.weight != 1 || has_accumulated_) {
    pack(on_device, contribution.weight, has_accumulated_);
  }
  const Elements values(on_device.values, bucket.layout.count(), on_device.type);
  const DeviceWire narrow{parts_->options.wire, bucket.residual};
  if (!scatters(bucket) || ranks() == 1) {
    if (!wire(bucket)) return all_reduce(values.data(), on_device.count, values.type());
    float* const sums = values.as<float>().data();
    return communicator_.all_reduce(sums, sums, on_device.count, narrow, stream_.get());
  }
  const std::span<std::byte> padding = values.subspan(on_device.count, bucket.layout.padding).bytes();
  zero(padding.data(), padding.size());
  const std::size_t part = values.size() / ranks();
  const Elements own = values.subspan(rank() * part, part);
  if (wire(bucket)) {
    return communicator_.reduce_scatter(values.as<float>().data(), own.as<float>().data(), part, narrow,
                                        stream_.get());
  }
  communicator_.reduce_scatter(values.data(), own.data(), part, values.type(), ReduceOp::sum, stream_.get());
}

/// Reduces the rows that any rank has touched, once all ranks have reported theirs. These rows are the pieces
/// of the step's bucket; other rows are zeros and do not travel.
void CudaGradientQueue::reduce_rows(Bucket& bucket) {
  const GradientPiece& whole = bucket.layout.pieces.front();
  TouchedRows& touched = this->touched(bucket);
  bucket.exchange.wait();
  touched.set_all();
  const bool alone = touched.travel_alone(parts_->context);
  const std::vector<GradientPiece> pieces =
      alone ? touched.pieces(whole.gradient) : std::vector<GradientPiece>{whole};
  if (staged_pieces_ == 0) check_cuda(cudaEventSynchronize(uploaded_.get()), "cudaEventSynchronize");
  Piece* const staged = staged_.get() + staged_pieces_;
  gradient_pass::Bucket& on_device = bucket.on_device;
  on_device.pieces = row_pieces_ + staged_pieces_;
  on_device.piece_count = static_cast<std::uint32_t>(pieces.size());
  on_device.count = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    staged[i] = piece_of(pieces[i], on_device.count);
    on_device.count += pieces[i].count;
  }
  if (!pieces.empty()) {
    check_cuda(cudaMemcpyAsync(row_pieces_ + staged_pieces_, staged, pieces.size() * sizeof(Piece),
                               cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
  }
  staged_pieces_ += touched.rows() / 2 + 1;
  check_cuda(cudaEventRecord(uploaded_.get(), stream_.get()), "cudaEventRecord");
  const bool packs = alone || bucket.is_packed;
  on_device.values = packs ? packed_rows_ : parts_->gradients[whole.gradient].values.data();
  if (packs || bucket.weight != 1 || has_accumulated_) pack(on_device, bucket.weight, has_accumulated_);
  all_reduce(on_device.values, on_device.count, on_device.type);
}

/// The elements of a bucket whose squares this rank adds up.
Range CudaGradientQueue::own_range(const Bucket& bucket) const {
  const std::uint64_t count = bucket.on_device.count;
  if (!scatters(bucket)) return {count * rank() / ranks(), count * (rank() + 1) / ranks()};
  const std::uint64_t part = bucket.layout.count() / ranks();
  return {std::min(rank() * part, count), std::min((rank() + 1) * part, count)};
}

void CudaGradientQueue::unpack(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  const std::size_t bytes = bucket.on_device.count * size_of(bucket.layout.type);
  const device::NvtxRange range("unpack", bytes);
  const auto scope = communicator_.scope("unpack", stream_.get(), bytes);
  const double* const weight = parts_->options.leave_sums ? nullptr : weight_sum_;
  const Range own = own_range(bucket);
  double* const squares = squares_.data + index * gradient_pass::unpacking_blocks;
  exact_squares_ != nullptr
      ? gradient_pass::launch_unpack_exactly(bucket.on_device, weight, own, exact_squares_, stream_.get())
      : gradient_pass::launch_unpack(bucket.on_device, weight, own, squares, stream_.get());
}

/// A non-finite sum of squares tells all ranks of a problem; this rank's weight may already have been sent.
void CudaGradientQueue::conclude(bool has_problem, std::size_t /*missing*/) {
  send_weight();  // of a step without buckets
  if (exact_squares_ != nullptr) {
    gradient_pass::launch_carry(exact_squares_, has_problem, stream_.get());
    all_reduce(exact_squares_, ExactSquares::numbers, DataType::i64);
    gradient_pass::launch_add_up(exact_squares_, square_sum_, stream_.get());
    zero(exact_squares_, sizeof(ExactSquares));
  } else {
    const std::size_t sums = buckets_.size() * gradient_pass::unpacking_blocks;
    has_problem
        ? gradient_pass::launch_set(square_sum_, std::numeric_limits<double>::quiet_NaN(), stream_.get())
        : gradient_pass::launch_add_up(squares_.data, sums, square_sum_, stream_.get());
    all_reduce(square_sum_, 1, DataType::f64);
  }
  gradient_pass::launch_conclude(weight_sum_, square_sum_, parts_->options.leave_sums, outcome_,
                                 stream_.get());
}

StepOutcome CudaGradientQueue::fetch() {
  follow_reported();
  check_cuda(
      cudaMemcpyAsync(fetched_.get(), outcome_, sizeof *outcome_, cudaMemcpyDeviceToHost, stream_.get()),
      "cudaMemcpyAsync");
  communicator_.wait(stream_.get());
  return {{fetched_->weight, fetched_->scale, fetched_->norm, fetched_->finite != 0}};
}

std::uint64_t CudaGradientQueue::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.layout.rows) sum += touched(bucket).rows();
    sum += bucket.on_device.count * size_of(wire(bucket).value_or(bucket.layout.type));
  }
  return sum;
}

void CudaGradientQueue::gather(std::span<const Parameter> parameters, Stream stream) {
  if (is_captured(stream) && !are_placed(parameters)) {
    throw Error(
        ErrorCode::unsupported,
        "GradientReducer: the stream is being captured, but gather(parameters) prepares memory on its first "
        "call with these parameters; call it once before the capture");
  }
  place_parameters(parameters);
  device::join(stream, stream_.get(), event_);
  const Piece* pieces = parameter_pieces_.data;
  for (const Bucket& bucket : buckets_) {
    const BucketLayout layout = layout_of_parameters(bucket.layout);
    const Elements run = one_run(layout, parameters);
    const bool in_place = run.size() > 0;
    float* const values = static_cast<float*>(in_place ? run.data() : gathered_.data);
    const gradient_pass::Bucket all = {.pieces = pieces,
                                       .piece_count = static_cast<std::uint32_t>(layout.pieces.size()),
                                       .values = values,
                                       .type = layout.type,
                                       .count = layout.count() - layout.padding,
                                       .scattered = false};
    pieces += layout.pieces.size();
    if (!in_place) pack(all, 1, false);
    const std::size_t part = layout.count() / ranks();
    if (part > 0) {
      communicator_.all_gather(values + rank() * part, values, part, DataType::f32, stream_.get());
    }
    // `squares_` is free here: `conclude` has already summed this step's squares.
    if (!in_place) {
      gradient_pass::launch_unpack(all, nullptr, {0, 0}, squares_.data, stream_.get());
    }
  }
  precede(stream);
}

GradientReducer::GradientReducer(DeviceCommunicator& communicator, std::vector<Gradient> gradients,
                                 GradientReducerOptions options)
    : state_(std::make_unique<State>(communicator.context(), std::move(gradients), options,
                                     std::make_unique<CudaGradientQueue>(communicator))) {}

}  // namespace ddl
