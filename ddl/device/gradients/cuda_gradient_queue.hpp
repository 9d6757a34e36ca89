#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

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

/// Gradients in a device's memory: all is queued on one stream, ahead of others that are ready to run.
class CudaGradientQueue final : public GradientQueue {
 public:
  /// Collective.
  explicit CudaGradientQueue(DeviceCommunicator& communicator);
  /// Waits for what is queued; memory that others may still use after a failure is not given back.
  ~CudaGradientQueue() override;

  [[nodiscard]] bool is_on_device() const noexcept override { return true; }
  void open(const ReducerParts& parts) override;
  std::size_t bucket_bytes(std::size_t total) override;
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
  [[nodiscard]] const DeviceOutcome* outcome() const noexcept override { return outcome_; }
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
    float* residual = nullptr;             // what the wire's rounding leaves, of each value
    // For rows.
    std::vector<std::uint8_t> map;
    Work exchange;
    double weight = 1;
  };
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }
  /// What travels between hosts, if that is not f32; rows are.
  [[nodiscard]] std::optional<DataType> wire(const Bucket& bucket) const {
    return bucket.residual != nullptr ? std::optional(parts_->options.wire) : std::nullopt;
  }
  [[nodiscard]] bool scatters(const Bucket& bucket) const {
    return parts_->options.sharded_update && !bucket.layout.rows;
  }
  /// Zeros.
  template <typename T>
  T* allocate(std::size_t count) {
    const std::string whose = fmt::format("GradientReducer: rank {}", communicator_.rank());
    memory_.push_back(device::allocate_on_device(count * sizeof(T), whose, stream_.get()));
    return reinterpret_cast<T*>(memory_.back().get());
  }
  /// Memory of the device that is replaced where more of it is needed.
  template <typename T>
  struct Room {
    T* data = nullptr;
    std::size_t count = 0;
  };
  template <typename T>
  void enlarge(Room<T>& room, std::size_t count) {
    if (count > room.count) room = {allocate<T>(count), count};
  }
  /// The same of memory that other ranks reach. Collective.
  void enlarge_shared(Room<std::byte>& room, std::size_t bytes) {
    if (bytes > room.count) room = {communicator_.allocate(bytes).data, bytes};
  }
  [[nodiscard]] gradient_pass::Piece piece_of(const GradientPiece& piece, std::size_t at) const;
  void place_buckets();
  void place_residuals();
  void write_pieces();
  void place_parameters(std::span<const Parameter> parameters);
  template <typename Make>
  [[nodiscard]] std::vector<gradient_pass::Piece> all_pieces(const Make& make) const;
  void upload(Room<gradient_pass::Piece>& to, const std::vector<gradient_pass::Piece>& pieces);
  void follow_reported();
  void zero(void* data, std::size_t bytes);
  void pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated);
  void all_reduce(void* data, std::size_t count, DataType type);
  void reduce_rows(Bucket& bucket);
  [[nodiscard]] gradient_pass::Range own_range(const Bucket& bucket) const;

  DeviceCommunicator& communicator_;
  device::Stream stream_;
  device::Event event_;
  device::Event uploaded_;  // the last step's pieces of rows
  std::vector<device::DeviceBytes> memory_;
  device::Pinned<DeviceOutcome> fetched_;

  std::optional<ReducerParts> parts_;
  std::vector<std::size_t> places_;  // of each gradient among all elements
  std::vector<Bucket> buckets_;

  // In the device's memory.
  Room<std::byte> packed_;
  Room<gradient_pass::Piece> pieces_;
  float* accumulated_ = nullptr;           // of all gradients, in order of registration
  Room<float> residual_;                   // of each bucket that has a wire, one after the other
  Room<double> squares_;                   // of each bucket
  ExactSquares* exact_squares_ = nullptr;  // in place of those, in reproducible contexts; zeros between steps
  double* weight_sum_ = nullptr;
  double* square_sum_ = nullptr;
  DeviceOutcome* outcome_ = nullptr;
  // Of rows: memory for the largest gradient that has any, and the pieces of a step, here and on the host.
  float* packed_rows_ = nullptr;
  gradient_pass::Piece* row_pieces_ = nullptr;
  device::Pinned<gradient_pass::Piece> staged_;
  // For `gather`.
  Room<std::byte> gathered_;
  Room<gradient_pass::Piece> parameter_pieces_;
  std::vector<const void*> parameters_;  // that they are of

  // Of a step.
  std::vector<Stream> reported_on_;  // since the queue has followed them
  bool has_accumulated_ = false;
  std::size_t staged_pieces_ = 0;
};

}  // namespace ddl
