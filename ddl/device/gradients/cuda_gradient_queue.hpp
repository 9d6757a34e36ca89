#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/device.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/gradients/gradient_pass.hpp"
#include "ddl/gradients/gradient_queue.hpp"
#include "ddl/work.hpp"

namespace ddl {

/// Reduces gradients in device memory. All work is queued on one stream of high priority.
class CudaGradientQueue final : public GradientQueue {
 public:
  /// Collective.
  explicit CudaGradientQueue(DeviceCommunicator& communicator);
  /// Waits for queued work. After a failure, memory that other ranks may still use is not freed.
  ~CudaGradientQueue() override;

  [[nodiscard]] bool is_on_device() const noexcept override { return true; }
  void open(const ReducerParts& parts) override;
  std::size_t bucket_bytes(std::size_t total) override;
  void arrange(const std::vector<BucketLayout>& layouts, bool is_final) override;
  [[nodiscard]] std::vector<std::string> plans() const override;

  [[nodiscard]] bool is_captured(Stream stream) const override { return device::is_capturing(stream); }
  [[nodiscard]] bool can_be_captured() const override;
  void ready_on(Stream stream) override;
  void precede(Stream stream) override;
  void accumulate(std::size_t gradient, double weight) override;
  /// Unless `blocking`, the next `reduce` starts it: `begin` has no stream, which may be one that is being
  /// captured.
  void start_weight(double own, bool blocking) override {
    weight_ = own;
    if (blocking) send_weight();
  }
  void start_weight(double before, const double* given) override;
  [[nodiscard]] bool has_weight() override { return true; }
  void reduce(std::size_t index, const Contribution& contribution) override;
  [[nodiscard]] bool is_reduced(std::size_t bucket) override { return !buckets_[bucket].layout.rows; }
  void wait(std::size_t index) override {
    if (buckets_[index].layout.rows) reduce_rows(buckets_[index]);
  }
  void unpack(std::size_t index) override;
  void conclude(bool has_problem, std::size_t missing) override;
  StepOutcome fetch() override;
  [[nodiscard]] const DeviceOutcome* outcome() const noexcept override { return outcome_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept override;
  void next_step() noexcept override {
    weight_.reset();
    has_accumulated_ = false;
    staged_pieces_ = 0;
  }
  void gather(std::span<const Parameter> parameters, Stream stream) override;
  [[nodiscard]] std::vector<NamedTensor> residuals() override {
    return residual_tensors(buckets_, [](const Bucket& bucket) {
      return std::span(bucket.residual, bucket.residual == nullptr ? 0 : bucket.layout.count());
    });
  }
  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return packed_.count + gathered_.count; }

 private:
  struct Bucket {
    BucketLayout layout;
    gradient_pass::Bucket on_device = {};  // for rows, set in each step
    bool is_packed = false;                // copied to memory of its own instead of reduced in place
    float* residual = nullptr;             // rounding error of each value from the 16-bit wire type
    // For rows.
    Work exchange;
    double weight = 1;
  };
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }
  /// The wire type between hosts; empty for f32, which rows always use.
  [[nodiscard]] std::optional<DataType> wire(const Bucket& bucket) const {
    return bucket.residual != nullptr ? std::optional(parts_->options.wire) : std::nullopt;
  }
  [[nodiscard]] TouchedRows& touched(const Bucket& bucket) const {
    return parts_->touched[bucket.layout.pieces.front().gradient];
  }
  [[nodiscard]] bool scatters(const Bucket& bucket) const {
    return parts_->options.sharded_update && !bucket.layout.rows;
  }
  /// Allocates zeroed device memory.
  template <typename T>
  T* allocate(std::size_t count) {
    const std::string whose = fmt::format("GradientReducer: rank {}", communicator_.rank());
    memory_.push_back(device::allocate_on_device(count * sizeof(T), whose, stream_.get()));
    return reinterpret_cast<T*>(memory_.back().get());
  }
  /// Device memory that `enlarge` replaces when more is needed.
  template <typename T>
  struct Room {
    T* data = nullptr;
    std::size_t count = 0;
  };
  template <typename T>
  void enlarge(Room<T>& room, std::size_t count) {
    if (count > room.count) room = {allocate<T>(count), count};
  }
  /// As `enlarge`, for memory that other ranks can reach. Collective.
  void enlarge_shared(Room<std::byte>& room, std::size_t bytes) {
    if (bytes > room.count) room = {communicator_.allocate(bytes).data, bytes};
  }
  [[nodiscard]] gradient_pass::Piece piece_of(const GradientPiece& piece, std::size_t at) const;
  void place_buckets();
  void place_residuals();
  void write_pieces();
  [[nodiscard]] bool are_placed(std::span<const Parameter> parameters) const {
    return std::ranges::equal(parameters, parameters_, {},
                              [](const Parameter& parameter) { return parameter.values.data(); });
  }
  void place_parameters(std::span<const Parameter> parameters);
  template <typename Make>
  [[nodiscard]] std::vector<gradient_pass::Piece> all_pieces(const Make& make) const;
  void upload(Room<gradient_pass::Piece>& to, const std::vector<gradient_pass::Piece>& pieces);
  void follow_reported();
  void send_weight();
  void zero(void* data, std::size_t bytes);
  void pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated);
  void all_reduce(void* data, std::size_t count, DataType type);
  void reduce_rows(Bucket& bucket);
  [[nodiscard]] gradient_pass::Range own_range(const Bucket& bucket) const;

  DeviceCommunicator& communicator_;
  device::Stream stream_;
  device::Event event_;
  device::Event uploaded_;  // the last upload of pieces of rows
  std::vector<device::DeviceBytes> memory_;
  device::Pinned<DeviceOutcome> fetched_;

  std::optional<ReducerParts> parts_;
  std::vector<std::size_t> places_;  // offset of each gradient in the elements of all gradients
  std::vector<Bucket> buckets_;

  // In device memory.
  Room<std::byte> packed_;
  Room<gradient_pass::Piece> pieces_;
  float* accumulated_ = nullptr;  // all gradients, in order of registration
  Room<float> residual_;          // all buckets with a wire type, contiguous
  Room<double> squares_;          // `unpacking_blocks` sums for each bucket
  ExactSquares* exact_squares_ =
      nullptr;  // replaces `squares_` in reproducible contexts; zeros between steps
  double* weight_sum_ = nullptr;
  double* square_sum_ = nullptr;
  DeviceOutcome* outcome_ = nullptr;
  // For rows: memory for the largest gradient with rows, and a step's pieces on the device and on the host.
  std::byte* packed_rows_ = nullptr;
  gradient_pass::Piece* row_pieces_ = nullptr;
  device::Pinned<gradient_pass::Piece> staged_;
  // For `gather`.
  Room<std::byte> gathered_;
  Room<gradient_pass::Piece> parameter_pieces_;
  std::vector<const void*> parameters_;  // that they are of

  // State of a step.
  std::vector<Stream> reported_on_;  // streams of `ready_on` that the queue has not waited for yet
  std::optional<double> weight_;     // this rank's, if the sum over all ranks has not been started yet
  bool has_accumulated_ = false;
  std::size_t staged_pieces_ = 0;
};

}  // namespace ddl
