#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/buckets.hpp"
#include "ddl/gradients/step_ledger.hpp"
#include "ddl/topology/plan.hpp"

namespace ddl {

/// Parts of a reducer that its queue uses; they outlive the queue.
struct ReducerParts {
  Context context;
  const std::vector<Gradient>& gradients;
  const GradientReducerOptions& options;
  std::vector<TouchedRows>& touched;  ///< For each gradient.
};

/// This rank's contribution to a bucket's sums: the weight times each gradient that counts, zeros for the
/// others, plus the accumulated means of earlier micro-batches.
struct Contribution {
  const StepLedger& ledger;
  bool is_mean;
  double weight;  ///< 1 for sums.
  bool adds_accumulated;

  [[nodiscard]] bool counts(std::size_t gradient) const {
    return is_mean ? weight != 0 && ledger.has_value_now(gradient) : ledger.has_value(gradient);
  }
};

/// The outcome of a step over all ranks.
struct StepOutcome {
  ReducedStep step;
  // Only on hosts: the number of ranks with a problem, and the sum over ranks of gradients without a value.
  double problems = 0;
  double missing = 0;
};

/// Reduces buckets: in the host's memory by asynchronous collectives, or on a device, on a stream. The
/// reducer decides what to reduce and in which order; all ranks make the same calls. Not thread-safe.
///
/// A step: `reduce` for each bucket in order; `start_weight` at any time; then `wait` and `unpack` for each
/// bucket; then `conclude`. On a device all of these only queue work. On hosts `wait` blocks, and `unpack`
/// must come after `wait` (or a true `is_reduced`) and after `total_weight` (or a true `has_weight`).
class GradientQueue {
 public:
  using Stream = DeviceStream;

  GradientQueue() = default;
  GradientQueue(const GradientQueue&) = delete;
  GradientQueue& operator=(const GradientQueue&) = delete;
  virtual ~GradientQueue() = default;

  [[nodiscard]] virtual bool is_on_device() const noexcept = 0;

  // The following functions are for set-up: they are collective and may wait for the device.

  virtual void open(const ReducerParts& parts) = 0;
  /// The bucket size for gradients of `total` bytes; rank 0's counts. Not collective.
  virtual std::size_t bucket_bytes(std::size_t total) = 0;
  /// Allocates memory for new buckets. `is_final`: the layout will not change again.
  virtual void arrange(const std::vector<BucketLayout>& layouts, bool is_final) = 0;
  /// The gradients have moved, between steps. Not collective; only on hosts.
  virtual void rebind() {}
  /// For each bucket, hashes of the plans that determine the order of this rank's additions.
  [[nodiscard]] virtual std::vector<std::string> plans() const = 0;

  /// Whether work on the stream becomes part of a graph.
  [[nodiscard]] virtual bool is_captured(Stream /*stream*/) const { return false; }
  /// Whether the reductions of all buckets can become part of a graph.
  [[nodiscard]] virtual bool can_be_captured() const { return false; }
  /// A gradient is final once the work queued on `stream` is done.
  virtual void ready_on(Stream /*stream*/) {}
  /// Makes work that is queued on `stream` from now on wait for the work of this queue.
  virtual void precede(Stream /*stream*/) {}

  /// Adds the weighted mean of a micro-batch to the memory for the step's last `reduce`.
  virtual void accumulate(std::size_t gradient, double weight) = 0;
  /// Starts the sum of all ranks' weights; completes it in the caller's thread if `blocking`.
  virtual void start_weight(double own, bool blocking) = 0;
  /// The same for `before` and the number at `given`, in device memory. Only on devices.
  virtual void start_weight(double /*before*/, const double* /*given*/) {}
  /// Whether the sum of the weights is complete, finite and positive.
  [[nodiscard]] virtual bool has_weight() = 0;
  /// Waits for the sum of the weights. Only on hosts.
  [[nodiscard]] virtual double total_weight() { return 0; }
  /// Starts a bucket's reduction; for a gradient with rows, the exchange of the map of touched rows.
  virtual void reduce(std::size_t bucket, const Contribution& contribution) = 0;
  /// Starts the next stage of buckets with rows, where possible. Does not block.
  virtual void advance() {}
  [[nodiscard]] virtual bool is_reduced(std::size_t bucket) = 0;
  virtual void wait(std::size_t bucket) = 0;
  /// Writes sums or means to the gradients and adds up this rank's squares.
  virtual void unpack(std::size_t bucket) = 0;
  /// Adds up the squares of all ranks. On devices a problem makes the outcome not finite.
  virtual void conclude(bool has_problem, std::size_t missing) = 0;
  /// Waits for the outcome and returns it, without `ReducedStep::bytes`.
  virtual StepOutcome fetch() = 0;
  /// The outcome in device memory; null on hosts.
  [[nodiscard]] virtual const DeviceOutcome* outcome() const noexcept { return nullptr; }
  /// The bytes that this rank reduced in this step.
  [[nodiscard]] virtual std::uint64_t bytes() const noexcept = 0;
  /// See `GradientReducer::packed_bytes`.
  [[nodiscard]] virtual std::size_t packed_bytes() const noexcept = 0;
  /// Called when all ranks know whether the step counts: keeps or drops its rounding errors.
  virtual void settle(bool /*counts*/) {}
  virtual void next_step() noexcept = 0;

  /// The first started bucket that is not complete or has failed.
  [[nodiscard]] virtual std::optional<std::size_t> unfinished() noexcept { return {}; }
  /// Whether peers may be waiting for reductions that this rank has started.
  [[nodiscard]] virtual bool is_busy() noexcept { return false; }
  /// Waits for everything in flight and ignores errors.
  virtual void drain() noexcept {}

  /// Gives every rank the other ranks' shards of `parameters`, which are laid out like the gradients.
  virtual void gather(std::span<const Parameter> parameters, Stream stream) = 0;
  [[nodiscard]] virtual std::vector<NamedTensor> residuals() = 0;
};

/// The rounding errors of buckets with a 16-bit wire type, as tensors of a checkpoint. `of(bucket)`: those of
/// a bucket; empty without such a type.
template <typename Buckets, typename Of>
std::vector<NamedTensor> residual_tensors(Buckets& buckets, const Of& of) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const std::span<float> errors = of(buckets[i]);
    if (errors.empty()) continue;
    tensors.push_back({"residual/" + std::to_string(i),
                       DataType::f32,
                       {static_cast<std::int64_t>(errors.size())},
                       std::as_writable_bytes(errors)});
  }
  return tensors;
}

/// The hash of a communicator's plan for `count` elements, as text; empty for a single rank or no elements.
template <typename AnyCommunicator>
std::string plan_text(const AnyCommunicator& communicator, topology::Collective collective, std::size_t count,
                      DataType type, std::optional<DataType> wire = {}) {
  if (communicator.size() == 1 || count == 0) return {};
  const std::uint64_t bytes = count * size_of(type);
  const topology::Plan plan =
      wire ? communicator.plan(collective, bytes, type, wire) : communicator.plan(collective, bytes, type);
  return fmt::format("{:016x}", topology::hash(plan));
}

}  // namespace ddl
