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

/// What a reducer lends its queue, for good.
struct ReducerParts {
  Context context;
  const std::vector<Gradient>& gradients;
  const GradientReducerOptions& options;
  std::vector<TouchedRows>& touched;  ///< Of each gradient.
};

/// This rank's part of a bucket's sums: gradients that count times the weight, zeros for others, and the
/// means of the micro-batches before.
struct Contribution {
  const StepLedger& ledger;
  bool is_mean;
  double weight;  ///< 1 for sums.
  bool adds_accumulated;

  [[nodiscard]] bool counts(std::size_t gradient) const {
    return is_mean ? weight != 0 && ledger.has_value_now(gradient) : ledger.has_value(gradient);
  }
};

/// What a step ends with, over all ranks.
struct StepOutcome {
  ReducedStep step;
  // By the host alone: how many ranks have a problem; how many gradients have no value, summed over ranks.
  double problems = 0;
  double missing = 0;
};

/// Reduces buckets where their gradients are: in the host's memory, by works of the communicator, or on a
/// device, on a stream. A reducer decides what is done, and in which order; all ranks make the same calls.
///
/// A step: `reduce` for each bucket in order, `start_weight` before or after; `wait` and `unpack` for each
/// bucket once the weight is started; `conclude`. A device's queue returns at once from all of these; the
/// host's `wait` waits, and its `unpack` must come after `is_reduced` or `wait`, and after `has_weight`. Not
/// thread-safe.
class GradientQueue {
 public:
  using Stream = DeviceStream;

  GradientQueue() = default;
  GradientQueue(const GradientQueue&) = delete;
  GradientQueue& operator=(const GradientQueue&) = delete;
  virtual ~GradientQueue() = default;

  [[nodiscard]] virtual bool is_on_device() const noexcept = 0;

  // Set-up: collective, and waits for the device.
  virtual void open(const ReducerParts& parts) = 0;
  /// Bytes of a bucket for gradients of `total` bytes.
  virtual std::size_t bucket_bytes(std::size_t total) = 0;
  /// What each bucket's number of elements is to be a multiple of.
  [[nodiscard]] virtual std::size_t multiple() const = 0;
  /// Gets memory for new buckets. `is_final`: they stay.
  virtual void arrange(const std::vector<BucketLayout>& layouts, bool is_final) = 0;
  /// Of each bucket, the hashes of the plans that decide in which order this rank's groups add.
  [[nodiscard]] virtual std::vector<std::string> plans() const = 0;

  /// Throws `unsupported` if what is queued on `stream` runs later, or often.
  virtual void require_usable(Stream /*stream*/) const {}
  /// A gradient is final once what is queued on `stream` is done.
  virtual void ready_on(Stream /*stream*/) {}
  /// What is queued on `stream` from now on waits for what is queued here.
  virtual void precede(Stream /*stream*/) {}

  /// Keeps a mean of this micro-batch, weighted, for the step's last one.
  virtual void accumulate(std::size_t gradient, double weight) = 0;
  /// Adds up all ranks' weights; with `blocking` in the caller's thread.
  virtual void start_weight(double own, bool blocking) = 0;
  /// Whether the sum is there, and such that means can be made.
  [[nodiscard]] virtual bool has_weight() = 0;
  /// Waits for the sum. Hosts alone.
  [[nodiscard]] virtual double total_weight() { return 0; }
  /// Starts a bucket's sums. Gradients with rows: the exchange of which rows they are.
  virtual void reduce(std::size_t bucket, const Contribution& contribution) = 0;
  /// Moves on what takes several stages. Does not block.
  virtual void advance() {}
  [[nodiscard]] virtual bool is_reduced(std::size_t bucket) = 0;
  virtual void wait(std::size_t bucket) = 0;
  /// Puts sums or means where the gradients are, and adds up squares.
  virtual void unpack(std::size_t bucket) = 0;
  /// Adds up the squares of all ranks. A problem makes the outcome not finite on devices.
  virtual void conclude(bool has_problem, std::size_t missing) = 0;
  /// Waits for the outcome, which does not have the bytes.
  virtual StepOutcome fetch() = 0;
  /// For kernels; null on hosts.
  [[nodiscard]] virtual const DeviceOutcome* outcome() const noexcept { return nullptr; }
  /// Bytes that this rank's gradients took in this step.
  [[nodiscard]] virtual std::uint64_t bytes() const noexcept = 0;
  /// Once all ranks know whether the step counts.
  virtual void settle(bool /*counts*/) {}
  virtual void next_step() noexcept = 0;

  /// The first bucket that was started and is not over, or has failed.
  [[nodiscard]] virtual std::optional<std::size_t> unfinished() noexcept { return {}; }
  /// Whether peers may wait for what this rank has started.
  [[nodiscard]] virtual bool is_busy() noexcept { return false; }
  /// Waits for what was started, whatever becomes of it.
  virtual void drain() noexcept {}

  /// Every rank gets the others' shards of values that are laid out as the gradients are.
  virtual void gather(std::span<const Parameter> parameters, Stream stream) = 0;
  [[nodiscard]] virtual std::vector<NamedTensor> residuals() = 0;
};

/// The hash of a communicator's plan for `count` values, as text; empty for one rank alone.
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
