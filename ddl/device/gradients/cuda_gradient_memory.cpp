
#include <algorithm>
#include <exception>
#include <utility>

#include "collectives/device/cuda_check.hpp"
#include "ddl/device/gradients/cuda_gradient_queue.hpp"
#include "ddl/device/gradients/gradient_kernels.hpp"

// Set-up of a queue: its device memory, and the place of each bucket in it.

namespace ddl {

using gradient_pass::Piece;
using topology::Collective;

namespace {

/// Alignment of buckets.
constexpr std::size_t line_bytes = 128;

std::size_t lines_of(std::size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

}  // namespace

CudaGradientQueue::CudaGradientQueue(DeviceCommunicator& communicator) : communicator_(communicator) {
  communicator.context().on_all_ranks("gradients on devices", [&] {
    check_cuda(gradient_pass::load_gradient_kernels(), "cudaFuncGetAttributes");
    stream_ = device::make_stream(device::Priority::urgent);
    event_ = device::make_event();
    uploaded_ = device::make_event();
    fetched_ = device::make_pinned<DeviceOutcome>();
  });
}

CudaGradientQueue::~CudaGradientQueue() {
  try {
    if (stream_) communicator_.release(stream_.get());
  } catch (const std::exception&) {
    // The communicator keeps the failure and reports it; its kernels no longer wait for other ranks.
    cudaStreamSynchronize(stream_.get());
  }
}

std::size_t CudaGradientQueue::bucket_bytes(std::size_t total) {
  return least_exposed_bytes(total, device_bucket_us, [&](std::size_t bytes) {
    return communicator_.plan(Collective::all_reduce, bytes, DataType::f32);
  });
}

void CudaGradientQueue::open(const ReducerParts& parts) {
  parts_.emplace(parts);
  std::size_t elements = 0;
  std::size_t bytes_of_rows = 0;
  std::size_t row_pieces = 0;
  for (std::size_t i = 0; i < parts.gradients.size(); ++i) {
    const std::size_t count = parts.gradients[i].values.size();
    places_.push_back(elements);
    elements += count;
    if (parts.gradients[i].row_width == 0) continue;
    const DataType type = summed_type(parts.gradients[i].values.type(), parts.options.narrow_sums);
    bytes_of_rows = std::max(bytes_of_rows, count * size_of(type));
    row_pieces += parts.touched[i].rows() / 2 + 1;  // adjacent rows form one piece
  }
  parts.context.on_all_ranks("device memory", [&] {
    weight_sum_ = allocate<double>(1);
    square_sum_ = allocate<double>(1);
    outcome_ = allocate<DeviceOutcome>(1);
    if (parts.context.options().reproducible) exact_squares_ = allocate<ExactSquares>(1);
    const bool accumulates = parts.options.micro_batches && parts.options.gradients == GradientKind::mean;
    if (accumulates) accumulated_ = allocate<float>(elements);
    if (row_pieces == 0) return;
    row_pieces_ = allocate<Piece>(row_pieces);
    staged_ = device::make_pinned<Piece>(row_pieces);
  });
  if (bytes_of_rows > 0) packed_rows_ = communicator_.allocate(bytes_of_rows).data;
}

/// The piece of a gradient that begins at element `at` of its bucket.
Piece CudaGradientQueue::piece_of(const GradientPiece& piece, std::size_t at) const {
  const std::size_t place = places_[piece.gradient] + piece.first;
  const Elements values = parts_->gradients[piece.gradient].values.subspan(piece.first, piece.count);
  return {values.data(), accumulated_ == nullptr ? nullptr : accumulated_ + place, at, at + piece.count,
          values.type()};
}

void CudaGradientQueue::arrange(const std::vector<BucketLayout>& layouts, bool is_final) {
  buckets_.clear();
  parameters_.clear();
  for (const BucketLayout& layout : layouts) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.layout = layout;
    bucket.on_device.count = layout.count() - layout.padding;
    bucket.on_device.type = layout.type;
    bucket.on_device.scattered = scatters(bucket);
    const Elements run = one_run(layout, parts_->gradients);
    bucket.is_packed = run.size() == 0 || !communicator_.reaches(run.data(), run.bytes().size());
  }
  place_buckets();
  write_pieces();
  // A residual belongs to a bucket, so residuals need the final layout.
  if (is_final && parts_->options.wire != DataType::f32 && parts_->context.hosts() > 1) place_residuals();
}

void CudaGradientQueue::place_residuals() {
  std::size_t count = 0;
  for (const Bucket& bucket : buckets_) count += bucket.layout.rows ? 0 : bucket.layout.count();
  parts_->context.on_all_ranks("device memory", [&] { enlarge(residual_, std::max<std::size_t>(count, 1)); });
  zero(residual_.data, count * sizeof(float));
  float* at = residual_.data;
  for (Bucket& bucket : buckets_) {
    if (bucket.layout.rows) continue;
    bucket.residual = at;
    at += bucket.layout.count();
  }
}

/// Allocating shared memory is collective, so all ranks allocate the largest size that any of them needs.
void CudaGradientQueue::place_buckets() {
  const auto bytes_of = [&](const Bucket& bucket) {
    return bucket.is_packed && !bucket.layout.rows ? lines_of(bucket.layout.bytes()) : 0;
  };
  std::int64_t most = 0;
  for (const Bucket& bucket : buckets_) most += static_cast<std::int64_t>(bytes_of(bucket));
  parts_->context.communicator().all_reduce(std::span(&most, 1), ReduceOp::max);
  enlarge_shared(packed_, static_cast<std::size_t>(most));
  std::byte* at = packed_.data;
  for (Bucket& bucket : buckets_) {
    const GradientPiece& first = bucket.layout.pieces.front();
    const bool has_own = bucket.is_packed && !bucket.layout.rows;
    // Values of buckets by rows are set in each step.
    const Elements values = parts_->gradients[first.gradient].values.subspan(first.first, first.count);
    bucket.on_device.values = has_own ? at : values.data();
    at += bytes_of(bucket);
  }
}

/// Uploads the pieces of all buckets for the kernels.
void CudaGradientQueue::write_pieces() {
  parts_->context.on_all_ranks("device memory", [&] {
    upload(pieces_,
           all_pieces([&](const GradientPiece& piece, std::size_t at) { return piece_of(piece, at); }));
    enlarge(squares_, std::max<std::size_t>(buckets_.size(), 1) * gradient_pass::unpacking_blocks);
  });
  Piece* at = pieces_.data;
  for (Bucket& bucket : buckets_) {
    bucket.on_device.pieces = at;
    bucket.on_device.piece_count = static_cast<std::uint32_t>(bucket.layout.pieces.size());
    at += bucket.layout.pieces.size();
  }
}

/// The pieces of all buckets, in order, made by `make(piece, at)`; `at` is the piece's offset in its bucket.
template <typename Make>
std::vector<Piece> CudaGradientQueue::all_pieces(const Make& make) const {
  std::vector<Piece> pieces;
  for (const Bucket& bucket : buckets_) {
    std::size_t at = 0;
    for (const GradientPiece& piece : bucket.layout.pieces) {
      pieces.push_back(make(piece, at));
      at += piece.count;
    }
  }
  return pieces;
}

/// Returns when the pieces are in device memory.
void CudaGradientQueue::upload(Room<Piece>& to, const std::vector<Piece>& pieces) {
  if (pieces.empty()) return;
  enlarge(to, pieces.size());
  check_cuda(cudaMemcpyAsync(to.data, pieces.data(), pieces.size() * sizeof(Piece), cudaMemcpyHostToDevice,
                             stream_.get()),
             "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

/// Prepares `gather` for parameters that differ from those of the last call: uploads their pieces, and makes
/// room for the largest bucket, for buckets whose parameters are not contiguous.
void CudaGradientQueue::place_parameters(std::span<const Parameter> parameters) {
  if (are_placed(parameters)) return;
  parts_->context.on_all_ranks("device memory", [&] {
    upload(parameter_pieces_, all_pieces([&](const GradientPiece& piece, std::size_t at) {
             const Elements values = parameters[piece.gradient].values.subspan(piece.first, piece.count);
             return Piece{values.data(), nullptr, at, at + piece.count, values.type()};
           }));
  });
  std::size_t largest = 0;
  for (const Bucket& bucket : buckets_) largest = std::max(largest, bucket.layout.count());
  enlarge_shared(gathered_, largest * sizeof(float));
  parameters_.clear();
  for (const Parameter& parameter : parameters) parameters_.push_back(parameter.values.data());
}

std::vector<std::string> CudaGradientQueue::plans() const {
  std::vector<std::string> plans;
  for (const Bucket& bucket : buckets_) {
    const Collective collective = scatters(bucket) ? Collective::reduce_scatter : Collective::all_reduce;
    plans.push_back(
        plan_text(communicator_, collective, bucket.layout.count(), bucket.layout.type, wire(bucket)));
  }
  return plans;
}

}  // namespace ddl
