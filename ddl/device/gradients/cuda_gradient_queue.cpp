#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "ddl/cuda_check.hpp"
#include "ddl/device.hpp"
#include "ddl/device/cuda_handles.hpp"
#include "ddl/device/gradients/gradient_kernels.hpp"
#include "ddl/device/nvtx_range.hpp"
#include "ddl/gradients/reducer.hpp"

// Gradients in a device's memory: all is queued on one stream, ahead of others that are ready to run.

namespace ddl {
namespace {

using gradient_pass::Outcome;
using gradient_pass::Piece;
using gradient_pass::Range;
using topology::Collective;

static_assert(sizeof(DeviceOutcome) == sizeof(Outcome) &&
              offsetof(DeviceOutcome, weight) == offsetof(Outcome, weight) &&
              offsetof(DeviceOutcome, scale) == offsetof(Outcome, scale) &&
              offsetof(DeviceOutcome, norm) == offsetof(Outcome, norm) &&
              offsetof(DeviceOutcome, finite) == offsetof(Outcome, finite));

/// Enough for a device's full rate; a first and a last one that are not worth mention.
constexpr std::size_t most_bucket_bytes = std::size_t{25} << 20;
constexpr std::size_t least_bucket_bytes = std::size_t{1} << 20;
constexpr std::size_t buckets_wanted = 20;
/// Between which buckets begin.
constexpr std::size_t line_bytes = 128;

std::size_t lines_of(std::size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

gradient_pass::Wire wire_of(DataType type) {
  if (type == DataType::bf16) return gradient_pass::Wire::bf16;
  return type == DataType::f16 ? gradient_pass::Wire::f16 : gradient_pass::Wire::f32;
}

class DeviceQueue final : public GradientQueue {
 public:
  /// Collective.
  explicit DeviceQueue(DeviceCommunicator& communicator);
  /// Waits for what is queued; memory that others may still use after a failure is not given back.
  ~DeviceQueue() override;

  [[nodiscard]] bool is_on_device() const noexcept override { return true; }
  void open(const ReducerParts& parts) override;
  std::size_t bucket_bytes(std::size_t total) override {
    return std::clamp(total / buckets_wanted, least_bucket_bytes, most_bucket_bytes);
  }
  [[nodiscard]] std::size_t multiple() const override { return parts_->options.sharded_update ? ranks() : 1; }
  void arrange(const std::vector<BucketLayout>& layouts, bool is_final) override;
  [[nodiscard]] std::vector<std::string> plans() const override;

  void require_usable(Stream stream) const override;
  void ready_on(Stream stream) override;
  void precede(Stream stream) override;
  void accumulate(std::size_t gradient, double weight) override;
  void start_weight(double own, bool blocking) override;
  [[nodiscard]] bool has_weight() override { return true; }
  void reduce(std::size_t index, const Contribution& contribution) override;
  [[nodiscard]] bool is_reduced(std::size_t bucket) override { return !buckets_[bucket].layout.rows; }
  void wait(std::size_t index) override {
    if (buckets_[index].layout.rows) reduce_rows(buckets_[index]);
  }
  void unpack(std::size_t index) override;
  void conclude(bool has_problem, std::size_t missing) override;
  StepOutcome fetch() override;
  [[nodiscard]] const DeviceOutcome* outcome() const noexcept override {
    return reinterpret_cast<const DeviceOutcome*>(outcome_);
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept override;
  void next_step() noexcept override {
    has_accumulated_ = false;
    staged_pieces_ = 0;
  }
  void gather(std::span<const Parameter> parameters, Stream stream) override;
  [[nodiscard]] std::vector<NamedTensor> residuals() override;

 private:
  struct Bucket {
    BucketLayout layout;
    gradient_pass::Bucket on_device = {};  // of rows: of this step
    bool is_packed = false;                // is not where the gradients are
    double* squares = nullptr;
    // For rows.
    std::vector<std::uint8_t> map;
    Work exchange;
    double weight = 1;
  };
  struct FreeDevice {
    void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
  };
  struct FreePinned {
    void operator()(void* memory) const noexcept { cudaFreeHost(memory); }
  };

  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }
  /// What travels, but for rows: between hosts only.
  [[nodiscard]] DataType wire() const {
    return parts_->context.hosts() > 1 ? parts_->options.wire : DataType::f32;
  }
  [[nodiscard]] bool scatters(const Bucket& bucket) const {
    return parts_->options.sharded_update && !bucket.layout.rows;
  }
  template <typename T>
  T* allocate(std::size_t count);
  template <typename T>
  T* pinned(std::size_t count);
  [[nodiscard]] Piece piece_of(const GradientPiece& piece, std::size_t at) const;
  void place_buckets();
  void write_pieces();
  void upload(void* to, const void* from, std::size_t bytes);
  void follow(Stream stream);
  void zero(void* data, std::size_t bytes);
  void pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated);
  void all_reduce(void* data, std::size_t count, DataType type);
  void reduce_rows(Bucket& bucket);
  [[nodiscard]] Range own_range(const Bucket& bucket) const;

  DeviceCommunicator& communicator_;
  device::Stream stream_;
  device::Event event_;
  device::Event uploaded_;  // the last step's pieces of rows
  std::vector<std::unique_ptr<std::byte, FreeDevice>> memory_;
  std::vector<std::unique_ptr<void, FreePinned>> pinned_memory_;
  Outcome* fetched_;  // page-locked

  std::optional<ReducerParts> parts_;
  std::vector<std::size_t> places_;  // of each gradient among all elements
  std::vector<Bucket> buckets_;

  // In the device's memory.
  std::byte* packed_ = nullptr;
  std::size_t packed_bytes_ = 0;
  Piece* pieces_ = nullptr;
  std::size_t piece_room_ = 0;
  float* accumulated_ = nullptr;  // of all gradients, in order of registration
  float* residual_ = nullptr;     // the same
  double* squares_ = nullptr;     // of each bucket
  std::size_t square_room_ = 0;
  ExactSquares* exact_squares_ = nullptr;  // in place of those, in reproducible contexts; zeros between steps
  double* weight_sum_ = nullptr;
  double* square_sum_ = nullptr;
  Outcome* outcome_ = nullptr;
  // Of rows: memory for the largest gradient that has any, and the pieces of a step, here and on the host.
  float* packed_rows_ = nullptr;
  Piece* row_pieces_ = nullptr;
  Piece* staged_ = nullptr;
  // For `gather`.
  float* gathered_ = nullptr;
  std::size_t gathered_room_ = 0;
  Piece* parameter_pieces_ = nullptr;
  std::size_t parameter_room_ = 0;
  std::vector<const float*> parameters_;  // that they are of

  // Of a step.
  std::vector<Stream> reported_on_;  // since the queue has followed them
  bool has_accumulated_ = false;
  std::size_t staged_pieces_ = 0;
};

// Set-up.

DeviceQueue::DeviceQueue(DeviceCommunicator& communicator) : communicator_(communicator) {
  communicator.context().on_all_ranks("gradients on devices", [&] {
    check_cuda(gradient_pass::load_gradient_kernels(), "cudaFuncGetAttributes");
    stream_ = device::make_urgent_stream();
    event_ = device::make_event();
    uploaded_ = device::make_event();
    fetched_ = pinned<Outcome>(1);
  });
}

DeviceQueue::~DeviceQueue() {
  try {
    if (stream_) communicator_.release(stream_.get());
  } catch (const std::exception&) {
    // What failed is known, or will be: the communicator keeps it. Its kernels do not wait any more.
    cudaStreamSynchronize(stream_.get());
  }
}

/// Zeros.
template <typename T>
T* DeviceQueue::allocate(std::size_t count) {
  void* memory = nullptr;
  const std::size_t wanted = std::max<std::size_t>(count * sizeof(T), 1);
  if (const cudaError_t result = cudaMalloc(&memory, wanted); result != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorCode::unsupported,
                fmt::format("GradientReducer: rank {} cannot have {} bytes of device memory: {}",
                            communicator_.rank(), wanted, cudaGetErrorString(result)));
  }
  memory_.emplace_back(static_cast<std::byte*>(memory));
  zero(memory, wanted);
  check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  return static_cast<T*>(memory);
}

template <typename T>
T* DeviceQueue::pinned(std::size_t count) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocDefault), "cudaHostAlloc");
  pinned_memory_.emplace_back(memory);
  return static_cast<T*>(memory);
}

void DeviceQueue::open(const ReducerParts& parts) {
  parts_.emplace(parts);
  std::size_t elements = 0;
  std::size_t most_rows = 0;
  std::size_t row_pieces = 0;
  for (std::size_t i = 0; i < parts.gradients.size(); ++i) {
    const std::size_t count = parts.gradients[i].values.size();
    places_.push_back(elements);
    elements += count;
    if (parts.gradients[i].row_width == 0) continue;
    most_rows = std::max(most_rows, count);
    row_pieces += parts.touched[i].rows() / 2 + 1;  // rows that lie side by side are one piece
  }
  parts.context.on_all_ranks("device memory", [&] {
    weight_sum_ = allocate<double>(1);
    square_sum_ = allocate<double>(1);
    outcome_ = allocate<Outcome>(1);
    if (parts.context.options().reproducible) exact_squares_ = allocate<ExactSquares>(1);
    const bool accumulates = parts.options.micro_batches && parts.options.gradients == GradientKind::mean;
    if (accumulates) accumulated_ = allocate<float>(elements);
    if (wire() != DataType::f32) residual_ = allocate<float>(elements);
    if (row_pieces == 0) return;
    row_pieces_ = allocate<Piece>(row_pieces);
    staged_ = pinned<Piece>(row_pieces);
  });
  if (most_rows > 0) {
    packed_rows_ = reinterpret_cast<float*>(communicator_.allocate(most_rows * sizeof(float)).data);
  }
}

/// Of which element `at` of a bucket is the first.
Piece DeviceQueue::piece_of(const GradientPiece& piece, std::size_t at) const {
  const std::size_t place = places_[piece.gradient] + piece.first;
  return {parts_->gradients[piece.gradient].values.data() + piece.first,
          accumulated_ == nullptr ? nullptr : accumulated_ + place,
          residual_ == nullptr ? nullptr : residual_ + place, at, at + piece.count};
}

void DeviceQueue::arrange(const std::vector<BucketLayout>& layouts, bool /*is_final*/) {
  buckets_.clear();
  parameters_.clear();
  for (const BucketLayout& layout : layouts) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.layout = layout;
    bucket.on_device.count = layout.count() - layout.padding;
    bucket.on_device.wire = wire_of(layout.rows ? DataType::f32 : wire());
    bucket.on_device.scattered = scatters(bucket);
    const bool narrow = wire() != DataType::f32 && !layout.rows;
    const std::span<float> run = one_run(layout, parts_->gradients);
    bucket.is_packed = narrow || run.empty() || !communicator_.reaches(run.data(), run.size_bytes());
    if (layout.rows) bucket.map.resize(parts_->touched[layout.pieces.front().gradient].rows());
  }
  place_buckets();
  write_pieces();
}

/// Shared memory is allocated by all ranks alike, also by those that could do without.
void DeviceQueue::place_buckets() {
  const auto bytes_of = [&](const Bucket& bucket) {
    return bucket.is_packed && !bucket.layout.rows ? lines_of(bucket.layout.count() * size_of(wire())) : 0;
  };
  std::int64_t most = 0;
  for (const Bucket& bucket : buckets_) most += static_cast<std::int64_t>(bytes_of(bucket));
  parts_->context.communicator().all_reduce(std::span(&most, 1), ReduceOp::max);
  if (static_cast<std::size_t>(most) > packed_bytes_) {
    packed_bytes_ = static_cast<std::size_t>(most);
    packed_ = communicator_.allocate(packed_bytes_).data;
  }
  std::byte* at = packed_;
  for (Bucket& bucket : buckets_) {
    const GradientPiece& first = bucket.layout.pieces.front();
    const bool has_own = bucket.is_packed && !bucket.layout.rows;
    bucket.on_device.values =
        has_own ? static_cast<void*>(at) : parts_->gradients[first.gradient].values.data() + first.first;
    at += bytes_of(bucket);
  }
}

/// For kernels.
void DeviceQueue::write_pieces() {
  std::vector<Piece> pieces;
  parts_->context.on_all_ranks("device memory", [&] {
    for (const Bucket& bucket : buckets_) {
      std::size_t at = 0;
      for (const GradientPiece& piece : bucket.layout.pieces) {
        pieces.push_back(piece_of(piece, at));
        at += piece.count;
      }
    }
    if (pieces.size() > piece_room_) {
      piece_room_ = pieces.size();
      pieces_ = allocate<Piece>(piece_room_);
    }
    upload(pieces_, pieces.data(), pieces.size() * sizeof(Piece));
    const std::size_t squares = std::max<std::size_t>(buckets_.size(), 1) * gradient_pass::unpacking_blocks;
    if (squares > square_room_) {
      square_room_ = squares;
      squares_ = allocate<double>(square_room_);
    }
  });
  Piece* at = pieces_;
  double* squares = squares_;
  for (Bucket& bucket : buckets_) {
    bucket.on_device.pieces = at;
    bucket.on_device.piece_count = static_cast<std::uint32_t>(bucket.layout.pieces.size());
    at += bucket.layout.pieces.size();
    bucket.squares = squares;
    squares += gradient_pass::unpacking_blocks;
  }
}

std::vector<std::string> DeviceQueue::plans() const {
  std::vector<std::string> plans;
  for (const Bucket& bucket : buckets_) {
    const Collective collective = scatters(bucket) ? Collective::reduce_scatter : Collective::all_reduce;
    plans.push_back(plan_text(communicator_, collective, bucket.layout.count(),
                              bucket.layout.rows ? DataType::f32 : wire()));
  }
  return plans;
}

// The stream. An event may be recorded again at once: who waits for it waits for what it held by then.

void DeviceQueue::follow(Stream stream) {
  check_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream_.get(), event_.get(), 0), "cudaStreamWaitEvent");
}

void DeviceQueue::precede(Stream stream) {
  for (const Stream other : std::exchange(reported_on_, {})) follow(other);
  check_cuda(cudaEventRecord(event_.get(), stream_.get()), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
}

void DeviceQueue::require_usable(Stream stream) const {
  if (!device::is_capturing(stream)) return;
  throw Error(ErrorCode::unsupported,
              "GradientReducer: the stream is being captured, but a step's weight and order are the host's; "
              "capture what comes before ready() and after finish(), and call these between the graphs");
}

/// The queue waits once for each stream, for the last gradient of a bucket, and so for all of it.
void DeviceQueue::ready_on(Stream stream) {
  require_usable(stream);
  if (std::ranges::find(reported_on_, stream) == reported_on_.end()) reported_on_.push_back(stream);
}

void DeviceQueue::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

void DeviceQueue::zero(void* data, std::size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemsetAsync(data, 0, bytes, stream_.get()), "cudaMemsetAsync");
}

// Sums.

void DeviceQueue::accumulate(std::size_t gradient, double weight) {
  if (accumulated_ == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "GradientReducer: no_sync() with gradient means needs memory for them; set micro_batches in "
                "the options");
  }
  for (const Stream stream : std::exchange(reported_on_, {})) follow(stream);
  if (!has_accumulated_) {
    const std::size_t elements = places_.back() + parts_->gradients.back().values.size();
    zero(accumulated_, elements * sizeof(float));
  }
  has_accumulated_ = true;
  const std::span<const float> values = parts_->gradients[gradient].values;
  check_cuda(gradient_pass::launch_add_scaled(accumulated_ + places_[gradient], values.data(), values.size(),
                                              weight, stream_.get()),
             "launch of add_scaled");
}

void DeviceQueue::start_weight(double own, bool /*blocking*/) {
  check_cuda(gradient_pass::launch_set(weight_sum_, own, stream_.get()), "launch of set");
  all_reduce(weight_sum_, 1, DataType::f64);
}

void DeviceQueue::all_reduce(void* data, std::size_t count, DataType type) {
  if (ranks() == 1 || count == 0) return;
  communicator_.all_reduce(data, data, count, type, ReduceOp::sum, stream_.get());
}

void DeviceQueue::pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated) {
  const device::NvtxRange range("pack", bucket.count * sizeof(float));
  const auto scope = communicator_.scope("pack", stream_.get(), bucket.count * sizeof(float));
  check_cuda(gradient_pass::launch_pack(bucket, weight, adds_accumulated, stream_.get()), "launch of pack");
}

void DeviceQueue::reduce(std::size_t index, const Contribution& contribution) {
  Bucket& bucket = buckets_[index];
  for (const Stream stream : std::exchange(reported_on_, {})) follow(stream);
  for (const GradientPiece& piece : bucket.layout.pieces) {
    if (contribution.counts(piece.gradient)) continue;
    zero(parts_->gradients[piece.gradient].values.data() + piece.first, piece.count * sizeof(float));
  }
  if (bucket.layout.rows) {
    const std::span<const std::uint8_t> own = parts_->touched[bucket.layout.pieces.front().gradient].own();
    std::ranges::copy(own, bucket.map.begin());
    bucket.weight = contribution.weight;
    bucket.exchange = parts_->context.communicator().all_reduce_async(std::span(bucket.map), ReduceOp::max);
    return;
  }
  const gradient_pass::Bucket& on_device = bucket.on_device;
  if (bucket.is_packed || contribution.weight != 1 || has_accumulated_) {
    pack(on_device, contribution.weight, has_accumulated_);
  }
  if (!scatters(bucket) || ranks() == 1) return all_reduce(on_device.values, on_device.count, wire());
  const std::size_t element = size_of(wire());
  auto* const values = static_cast<std::byte*>(on_device.values);
  zero(values + on_device.count * element, bucket.layout.padding * element);
  const std::size_t part = bucket.layout.count() / ranks();
  communicator_.reduce_scatter(values, values + rank() * part * element, part, wire(), ReduceOp::sum,
                               stream_.get());
}

/// Once all ranks have told which rows they have touched; others are zeros. Touched rows are the pieces of
/// this step's bucket.
void DeviceQueue::reduce_rows(Bucket& bucket) {
  const GradientPiece& whole = bucket.layout.pieces.front();
  TouchedRows& touched = parts_->touched[whole.gradient];
  bucket.exchange.wait();
  touched.set_all(bucket.map);
  const bool alone = touched.travel_alone(parts_->context);
  const std::vector<GradientPiece> pieces =
      alone ? touched.pieces(whole.gradient) : std::vector<GradientPiece>{whole};
  if (staged_pieces_ == 0) check_cuda(cudaEventSynchronize(uploaded_.get()), "cudaEventSynchronize");
  Piece* const staged = staged_ + staged_pieces_;
  gradient_pass::Bucket& on_device = bucket.on_device;
  on_device.pieces = row_pieces_ + staged_pieces_;
  on_device.piece_count = static_cast<std::uint32_t>(pieces.size());
  on_device.count = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    staged[i] = piece_of(pieces[i], on_device.count);
    on_device.count += pieces[i].count;
  }
  staged_pieces_ += touched.rows() / 2 + 1;
  if (!pieces.empty()) {
    check_cuda(cudaMemcpyAsync(row_pieces_ + (staged - staged_), staged, pieces.size() * sizeof(Piece),
                               cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
  }
  check_cuda(cudaEventRecord(uploaded_.get(), stream_.get()), "cudaEventRecord");
  const bool packs = alone || bucket.is_packed;
  on_device.values = packs ? packed_rows_ : parts_->gradients[whole.gradient].values.data() + whole.first;
  if (packs || bucket.weight != 1 || has_accumulated_) pack(on_device, bucket.weight, has_accumulated_);
  all_reduce(on_device.values, on_device.count, DataType::f32);
}

// Results.

/// Of which this rank adds up the squares.
Range DeviceQueue::own_range(const Bucket& bucket) const {
  const std::uint64_t count = bucket.on_device.count;
  if (!scatters(bucket)) return {count * rank() / ranks(), count * (rank() + 1) / ranks()};
  const std::uint64_t part = bucket.layout.count() / ranks();
  return {std::min(rank() * part, count), std::min((rank() + 1) * part, count)};
}

void DeviceQueue::unpack(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  const std::size_t bytes = bucket.on_device.count * sizeof(float);
  const device::NvtxRange range("unpack", bytes);
  const auto scope = communicator_.scope("unpack", stream_.get(), bytes);
  const double* const weight = parts_->options.leave_sums ? nullptr : weight_sum_;
  const Range own = own_range(bucket);
  check_cuda(
      exact_squares_ != nullptr
          ? gradient_pass::launch_unpack_exactly(bucket.on_device, weight, own, exact_squares_, stream_.get())
          : gradient_pass::launch_unpack(bucket.on_device, weight, own, bucket.squares, stream_.get()),
      "launch of unpack");
}

/// What is not finite tells all ranks of a problem: the weight may have been sent before it.
void DeviceQueue::conclude(bool has_problem, std::size_t /*missing*/) {
  if (exact_squares_ != nullptr) {
    check_cuda(gradient_pass::launch_carry(exact_squares_, has_problem, stream_.get()), "launch of carry");
    all_reduce(exact_squares_, ExactSquares::numbers, DataType::i64);
    check_cuda(gradient_pass::launch_add_up(exact_squares_, square_sum_, stream_.get()), "launch of add_up");
    zero(exact_squares_, sizeof(ExactSquares));
  } else {
    const std::size_t sums = buckets_.size() * gradient_pass::unpacking_blocks;
    check_cuda(has_problem ? gradient_pass::launch_set(square_sum_, std::numeric_limits<double>::quiet_NaN(),
                                                       stream_.get())
                           : gradient_pass::launch_add_up(squares_, sums, square_sum_, stream_.get()),
               "launch of add_up");
    all_reduce(square_sum_, 1, DataType::f64);
  }
  check_cuda(gradient_pass::launch_conclude(weight_sum_, square_sum_, parts_->options.leave_sums, outcome_,
                                            stream_.get()),
             "launch of conclude");
}

StepOutcome DeviceQueue::fetch() {
  check_cuda(cudaMemcpyAsync(fetched_, outcome_, sizeof *outcome_, cudaMemcpyDeviceToHost, stream_.get()),
             "cudaMemcpyAsync");
  communicator_.wait(stream_.get());
  return {fetched_->weight, fetched_->scale, fetched_->norm, fetched_->finite != 0};
}

std::uint64_t DeviceQueue::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Bucket& bucket : buckets_) {
    sum +=
        bucket.map.size() + bucket.on_device.count * (bucket.layout.rows ? sizeof(float) : size_of(wire()));
  }
  return sum;
}

/// Buckets whose parameters do not lie one after the other go through memory for the largest of them.
void DeviceQueue::gather(std::span<const Parameter> parameters, Stream stream) {
  std::vector<const float*> places;
  for (const Parameter& parameter : parameters) places.push_back(parameter.values.data());
  if (places != parameters_) {
    std::vector<Piece> pieces;
    std::size_t largest = 0;
    for (const Bucket& bucket : buckets_) {
      std::size_t at = 0;
      for (const GradientPiece& piece : bucket.layout.pieces) {
        float* const values = parameters[piece.gradient].values.data() + piece.first;
        pieces.push_back({values, nullptr, nullptr, at, at + piece.count});
        at += piece.count;
      }
      largest = std::max(largest, bucket.layout.count());
    }
    parts_->context.on_all_ranks("device memory", [&] {
      if (pieces.size() > parameter_room_) parameter_pieces_ = allocate<Piece>(pieces.size());
      parameter_room_ = std::max(parameter_room_, pieces.size());
      upload(parameter_pieces_, pieces.data(), pieces.size() * sizeof(Piece));
    });
    if (largest > gathered_room_) {
      gathered_room_ = largest;
      gathered_ = reinterpret_cast<float*>(communicator_.allocate(largest * sizeof(float)).data);
    }
    parameters_ = std::move(places);
  }
  follow(stream);
  const Piece* pieces = parameter_pieces_;
  for (const Bucket& bucket : buckets_) {
    const auto& layout = bucket.layout;
    gradient_pass::Bucket all = {.pieces = pieces,
                                 .piece_count = static_cast<std::uint32_t>(layout.pieces.size()),
                                 .wire = gradient_pass::Wire::f32,
                                 .values = gathered_,
                                 .count = layout.count() - layout.padding,
                                 .scattered = false};
    pieces += layout.pieces.size();
    const std::span<float> run = one_run(layout, parameters);
    const bool in_place = !run.empty();
    if (in_place) {
      all.values = run.data();
    } else {
      pack(all, 1, false);
    }
    const std::size_t part = layout.count() / ranks();
    auto* const values = static_cast<float*>(all.values);
    if (part > 0) {
      communicator_.all_gather(values + rank() * part, values, part, DataType::f32, stream_.get());
    }
    // The step's squares have been added up.
    if (!in_place) {
      check_cuda(gradient_pass::launch_unpack(all, nullptr, {0, 0}, squares_, stream_.get()),
                 "launch of unpack");
    }
  }
  precede(stream);
}

std::vector<NamedTensor> DeviceQueue::residuals() {
  std::vector<NamedTensor> tensors;
  if (residual_ == nullptr) return tensors;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Gradient& gradient = parts_->gradients[i];
    tensors.push_back({"residual/" + gradient.name,
                       DataType::f32,
                       {static_cast<std::int64_t>(gradient.values.size())},
                       std::as_writable_bytes(std::span(residual_ + places_[i], gradient.values.size()))});
  }
  return tensors;
}

}  // namespace

GradientReducer::GradientReducer(DeviceCommunicator& communicator, std::vector<Gradient> gradients,
                                 GradientReducerOptions options)
    : state_(std::make_unique<State>(communicator.context(), std::move(gradients), options,
                                     std::make_unique<DeviceQueue>(communicator))) {}

}  // namespace ddl
