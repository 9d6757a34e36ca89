#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "ddl/device_outcome.hpp"
#include "ddl/elements.hpp"
#include "ddl/parameter.hpp"

struct CUstream_st;

namespace ddl {

class DeviceCommunicator;
/// A CUDA stream, as `cudaStream_t`; null is the default stream.
using DeviceStream = CUstream_st*;

/// One parameter's gradient on this rank, e.g. `{"w", gradient}` with a span or a vector.
struct Gradient {
  std::string name;  ///< For messages; the same on all ranks.
  /// The gradient's elements: f32, f64, f16 or bf16, in the memory of the host or of this rank's device (not
  /// f64). Must stay in place while the reducer exists, or until `GradientReducer::rebind`.
  Elements values;
  /// Number of elements of a row, for a gradient of which a step touches few rows, such as an embedding's:
  /// see `GradientReducer::ready`. Must divide the number of elements. 0: no rows.
  std::size_t row_width = 0;
  /// For trainers that keep a gradient for each sample or thread: more vectors of the type and size of
  /// `values`, in the memory of the host, f32 or f64. `ready` adds them to `values` and zeroes them.
  std::vector<Elements> summands = {};
};

/// The gradients of the parameters of `model` that have one, in order; a gradient's index is its position in
/// the result. Throws `invalid_argument` for a gradient whose size is not its parameter's.
[[nodiscard]] std::vector<Gradient> gradients_of(const Model& model);

/// What the trainer's backward pass leaves in the gradients.
enum class GradientKind {
  sum,  ///< Sums over this rank's items; the weight (number of items) is given to `wait`, or to `begin`.
  /// Means over this rank's items; the weight is given to `begin`, before backward. With one rank they stay
  /// as they are, bit for bit (on hosts, without micro-batches).
  mean,
};

/// A `GradientKind` without a default value, so that `GradientReducerOptions` cannot be made without one.
struct ChosenGradientKind {
  /// Holds `chosen`.
  ChosenGradientKind(GradientKind chosen) noexcept : kind(chosen) {}
  /// The kind that was chosen.
  operator GradientKind() const noexcept { return kind; }
  GradientKind kind;  ///< The kind that was chosen.
};

/// Settings of a `GradientReducer`; the same on all ranks.
struct GradientReducerOptions {
  ChosenGradientKind gradients;  ///< Sums or means. Has no default: a wrong guess trains a wrong model.
  /// Largest size of a bucket, in bytes. 0: chosen, and logged at -dbg_level 1: the power of two from 16 KiB,
  /// or all gradients, with at most 32 buckets and the least predicted time of the last bucket, which
  /// backward cannot hide, plus a quarter of that of all buckets, which it hides unless they take longer,
  /// plus the cost of each bucket to the trainer's thread. For one rank on a host: 64 KiB.
  std::size_t bucket_bytes = 0;
  /// Whether each bucket is reduced as soon as its gradients are ready; else `wait` reduces all, after
  /// backward.
  bool overlap = true;
  /// The type of sums between hosts: f32, or bf16 or f16 with error feedback (see `Wire`, and `DeviceWire`
  /// for gradients on devices). The first step uses f32. bf16 needs no loss scaling; in f16, sums beyond
  /// 65,504 are infinite. Gradients with rows (`Gradient::row_width`) stay f32. Reproducible contexts and f64
  /// gradients accept only f32. Error feedback takes memory: on hosts twice the elements that this rank
  /// rounds, on devices the size of the gradients.
  DataType wire = DataType::f32;
  /// Whether each rank gets only the means of its own part of the parameters: see `shards` and `gather`.
  bool sharded_update = false;
  /// Whether the gradients stay sums, for an optimiser that multiplies by `ReducedStep::scale` in its own
  /// pass; else they become means.
  bool leave_sums = false;
  /// On devices: whether micro-batches (`no_sync`) of means will be used; they take memory of the gradients'
  /// size.
  bool micro_batches = false;
  /// Whether 16-bit gradients are summed in their own type, which halves the memory and the bytes between
  /// ranks; else in f32, rounded once at the end. Additions are done in f32, and rounded when their result
  /// travels on: the error of a sum over n ranks is at most (n - 1) u sum |x|, u the type's unit roundoff
  /// (2^-8 for bf16, 2^-11 for f16). Means are rounded once more on the way in, times their weight, and once
  /// on the way out. In f16, sums, and means times their weight, beyond 65,504 are infinite. Such gradients
  /// accept only the wire f32, as f64 ones do.
  bool narrow_sums = false;
};

/// The result of a step's reduction. The same on all ranks.
struct ReducedStep {
  double weight = 0;   ///< Sum of all ranks' weights.
  double scale = 1;    ///< The factor that turns the gradients into means: 1, unless they are left as sums.
  double norm = 0;     ///< Euclidean norm of all mean gradients together, within 1e-6 of itself.
  bool finite = true;  ///< Whether all gradients are finite; if not, no rank should update its model.
  std::uint64_t bytes = 0;  ///< Bytes of gradients that this rank reduced, in the type used between hosts.
};

/// A weight in the memory of this rank's device: a number of items that the device reads when the step ends.
struct DeviceWeight {
  const double* items = nullptr;
};

/// Elements [first, first + count) of a gradient, or of the parameter that it belongs to.
struct GradientPiece {
  std::size_t gradient = 0;  ///< The gradient's index, in order of registration.
  std::size_t first = 0;     ///< First element.
  std::size_t count = 0;     ///< Number of elements.

  /// Whether both are the same elements of the same gradient.
  friend bool operator==(const GradientPiece&, const GradientPiece&) = default;
};

/// Replaces each rank's gradients by their weighted mean over all ranks:
/// sum_r(w_r * mean_r) / sum_r(w_r) = sum_r(sum_r) / sum_r(w_r). So ranks whose batches hold different
/// numbers of items (target tokens), or none, count in proportion to them.
///
/// **A step**: `begin(weight)` (for means; optional for sums), then `ready(i)` once for each gradient, in any
/// order, as soon as backward has finished it, then `wait`. All ranks end with the same bits. A rank without
/// items takes part with weight 0: its means are ignored and may be NaN, its sums must be 0.
///
/// **Buckets.** Gradients are reduced in buckets, filled in the order in which gradients become ready. The
/// first step uses the reverse order of registration and learns the real one: the mean over all ranks of each
/// gradient's position. From then on a bucket is reduced, while backward goes on, as soon as all its
/// gradients are ready on this rank and the buckets before it have been started. A gradient larger than a
/// bucket is cut. `state` holds what was learned; a run that resumes with it has the same buckets, and so the
/// same bits, as a run that never stopped. With a sharded update only the order of the buckets is learned;
/// their contents stay those of the first step.
///
/// **Memory.** A bucket whose gradients are adjacent in memory, in order of registration, is reduced in
/// place; any other is packed into memory of the reducer. One flat buffer (`GradientBuffer`) that is
/// registered front to back and becomes ready in about the reverse order therefore needs neither copies nor
/// memory, and the ranks of a host reduce it in place. The trainer owns the gradients between `wait` and the
/// next `ready`; it must leave a gradient alone from its `ready` until `wait` returns.
///
/// **16-bit gradients** are summed in f32, in memory of the reducer of twice their size; with
/// `GradientReducerOptions::narrow_sums`, in their own type, like others in place where they are adjacent.
/// Micro-batches of means are added up in f32.
///
/// **Weights.** A weight given to `begin` is summed over all ranks during backward, so that `ready` can turn
/// finished buckets into means; with a weight given to `wait`, `wait` does so.
///
/// **Accumulation.** While a `no_sync` object exists, `wait` ends a micro-batch without reducing; the first
/// `wait` outside reduces the gradients of all micro-batches. Sums are accumulated by backward itself, which
/// must not zero the gradients between micro-batches. Means belong to one micro-batch each; the reducer
/// accumulates them, weighted, in memory of its own.
///
/// **Missing gradients.** `absent(i)` instead of `ready(i)` reports that a gradient has no value on this rank
/// in this step; it counts as zeros. A rank that has a weight and no values at all is warned of, once.
/// `has_gradient` returns whether any rank had a value.
///
/// **Rows.** A gradient with a `row_width` may be made ready with the rows that the step touched; its other
/// rows must be zero. Ranks then exchange one byte per row and reduce only the rows that any rank touched, if
/// these are few enough to be cheaper. Means, norm and result are the same as for whole gradients.
///
/// **Cost**: an all-reduce for each bucket; two of a few doubles; one pass over the gradients for the weight
/// (two for means; `leave_sums` saves one); one pass over 1/n of them for the norm. In reproducible contexts
/// the norm has the same bits whatever the buckets, and costs about 2 ns for each of these elements.
///
/// **On devices** (constructed with a `DeviceCommunicator`; link ddl::cuda) the reduction is queued on a
/// stream of the reducer:
/// - A gradient is final when the work queued on the stream of its `ready` is done. Work queued after
///   `finish` on its stream sees the results. Streams given to `ready` must exist until `finish`.
/// - Memory from `DeviceCommunicator::allocate` (any memory, if all ranks are threads of one process) is
///   reduced in place; other memory is packed into memory of the reducer, as much as that of the gradients.
///   Gradients with rows need staging for the largest of them.
/// - The host waits for the device only in the first step's `finish`, which learns the order, in the first
///   `gather`, and in `result`. With rows, `finish` also waits until the other ranks have reported theirs
///   (not for their devices), at most until the device has reached this step. `wait` is `finish` on the
///   default stream followed by `result`.
/// - `finish` throws errors of this rank's weight and of gradients that were not reported. The other ranks
///   see them in `result` (weight) or `ReducedStep::finite`. Other errors are those of `DeviceCommunicator`.
/// - All calls come from the thread that made the communicator.
/// - In reproducible contexts gradients and norm have the same bits as on hosts.
/// - **CUDA graphs.** If `can_be_captured`, a step whose calls come while their streams are being captured
///   becomes part of the graph; each launch reduces the gradients once. All of the step, from its first
///   `ready` to `finish`, is in one capture. A weight that is a number is the same in each launch; a
///   `DeviceWeight` is read anew. As `DeviceCommunicator` says, all ranks launch the graph equally often, and
///   in the same order with other calls. A rank waits for one that does not until the deadline; with NCCL,
///   until that one is found dead. Errors: `unsupported` for a step that cannot be captured;
///   `invalid_argument` for one of which only a part is captured.
///
/// **Threads.** `ready` and `absent` may be called by any thread, the other functions by one thread. If
/// threads other than that of `wait` report gradients, `wait` waits for missing reports for up to half of the
/// context's deadline.
///
/// **Errors**
/// - `invalid_argument`, on the calling rank: a wrong sequence of `begin`, `ready` and `wait`, an unknown
///   index or row, a gradient reported twice.
/// - `invalid_argument` from `wait`, on every rank: a negative or non-finite weight, or a gradient that was
///   not reported, on any rank; a total weight of 0. The step is then over and its gradients are undefined;
///   the next step can begin.
/// - Those of `Communicator`; the message names the oldest bucket that is not complete, and its gradients.
///   While a rank is in backward, the exit report names the gradient that its next bucket waits for.
class GradientReducer {
 public:
  /// Registers `gradients`, which are in the host's memory. Keeps `context` alive. Collective. Throws,
  /// agreed, `invalid_argument` for gradients that overlap, have an unsupported type or no memory, and for
  /// bad options; `mismatch` if gradients (names, sizes, types, order) or options differ between ranks, with
  /// the first difference and its ranks.
  GradientReducer(const Context& context, std::vector<Gradient> gradients, GradientReducerOptions options);
  /// The same for gradients in the memory of this rank's device. `communicator` must outlive the reducer.
  GradientReducer(DeviceCommunicator& communicator, std::vector<Gradient> gradients,
                  GradientReducerOptions options);
  /// Waits for reductions that have been started. If an exception destroys the reducer in the middle of a
  /// step, the other ranks' calls fail.
  ~GradientReducer();
  /// Takes over the reducer; the other object may only be destroyed or assigned to.
  GradientReducer(GradientReducer&&) noexcept;
  /// Takes over the reducer; the one that was here is destroyed.
  GradientReducer& operator=(GradientReducer&&) noexcept;

  /// Starts a step, or a micro-batch, over `weight` items of this rank. Required for gradient means. For
  /// sums, either all ranks call it or all ranks give the weight to `wait`.
  void begin(double weight);
  /// Reports that gradient `index` (in order of registration) is final on this rank for this step or
  /// micro-batch. On devices: once the work queued on `stream` is done.
  void ready(std::size_t index, DeviceStream stream = nullptr);
  /// The same for a gradient with a `row_width`: all its rows other than `rows` are zero. `rows` may come in
  /// any order and contain duplicates.
  void ready(std::size_t index, std::span<const std::int32_t> rows, DeviceStream stream = nullptr);
  /// Reports that gradient `index` has no value on this rank in this step or micro-batch; its memory is not
  /// read.
  void absent(std::size_t index);
  /// Ends a step of gradient sums over `weight` items of this rank. Returns when the gradients are reduced.
  /// Collective, except in a micro-batch.
  ReducedStep wait(double weight);
  /// The same for a step whose weight was given to `begin`.
  ReducedStep wait();

  /// On devices: queues the end of a step of gradient sums over `weight` items of this rank. Collective,
  /// except in a micro-batch. Throws `invalid_argument` for gradients on hosts.
  void finish(double weight, DeviceStream stream);
  /// The same with a weight in device memory. One that is no number of items makes the outcome not finite.
  void finish(const DeviceWeight& weight, DeviceStream stream);
  /// The same for a step whose weight was given to `begin`.
  void finish(DeviceStream stream);
  /// Whether a step can become part of a CUDA graph now: the gradients are on devices and not in rows, a
  /// first step has been taken, and all reductions are carried by the exchange or NCCL. The same on all
  /// ranks.
  [[nodiscard]] bool can_be_captured() const;
  /// The result of the last step in device memory, for work that is queued after `finish` on its stream. Null
  /// on hosts.
  [[nodiscard]] const DeviceOutcome* outcome() const noexcept;
  /// On devices: waits for the last step and returns its result. At most once per step.
  ReducedStep result();
  /// The same for the last step of a stream, whether it was finished there or is part of a graph that was
  /// launched there: waits for the stream.
  ReducedStep result(DeviceStream stream);

  /// While an object of this class exists, `wait` and `finish` end a micro-batch instead of a step; `wait`
  /// then returns only this rank's weight of the step so far. Must be destroyed before the reducer.
  class [[nodiscard]] NoSync {
   public:
    NoSync(NoSync&&) = delete;
    /// The next `wait` or `finish` ends the step.
    ~NoSync();

   private:
    friend GradientReducer;
    explicit NoSync(bool& scope) noexcept;
    bool& scope_;
  };
  /// Makes a step of several micro-batches: see `NoSync`. Throws `invalid_argument` if one exists already.
  NoSync no_sync();

  /// Whether any rank had a value for gradient `index` in the last step. On devices the first call after a
  /// step is collective. Throws `invalid_argument` for an unknown index.
  [[nodiscard]] bool has_gradient(std::size_t index) const;
  /// The rows of gradient `index` that any rank touched in the last step, ascending. Empty for a gradient
  /// without rows. Valid until the next step. Throws `invalid_argument` for an unknown index.
  [[nodiscard]] std::span<const std::uint32_t> touched_rows(std::size_t index) const;

  /// Sharded update: the elements whose means this rank has after `wait`, and which it must update. Each
  /// element belongs to a rank, except that the last ones of each gradient with rows, fewer than n, belong to
  /// all ranks, which update them alike. They stay the same, and so does the span, until `restore`. Empty
  /// without a sharded update.
  [[nodiscard]] std::span<const GradientPiece> shards() const;
  /// Sharded update: gives every rank the other ranks' updated elements of `parameters`, which must match the
  /// gradients in number, order and size; they are floats, and f64 exactly where the gradient is. On devices
  /// they are in device memory, and the work is queued in order with `stream`. Cost: an all-gather for each
  /// bucket. Collective. Throws `invalid_argument` for other parameters and without a sharded update.
  void gather(const std::vector<Parameter>& parameters, DeviceStream stream = nullptr);

  /// What this reducer has learned, and what its sums depend on, as JSON for `restore`. The same on all
  /// ranks.
  [[nodiscard]] std::string state() const;
  /// Resumes from the `state` of a reducer with the same gradients and options. For use before the first
  /// step. Logs a notice if the number of ranks is the same but plans differ, because sums may then differ in
  /// their last bits. Collective. Throws, agreed, `corrupt_data` for text that is no state, and `mismatch`
  /// for a state of other gradients or options, or if the ranks give different ones.
  void restore(std::string_view state);
  /// This rank's rounding errors of 16-bit wires, which the next step adds (error feedback): tensors to be
  /// saved or filled between steps. Empty for f32, and on hosts before the first step. Views, on devices of
  /// device memory; valid until `restore`.
  [[nodiscard]] std::vector<NamedTensor> residuals();

  /// Replaces the gradients by others with the same names, types and sizes, whose memory is elsewhere, as of
  /// vectors that have been resized; they may have another number of summands. What was learned is kept. Not
  /// collective. Throws `invalid_argument`, and keeps the gradients, for others than these, during a step
  /// (from its first call until `wait`), and for gradients on devices.
  void rebind(std::vector<Gradient> gradients);

  /// The share of the last step's exchange that backward hid: of the time in which calls were in flight, that
  /// in which no thread of this rank waited for them. Empty on devices, in a job of one rank, and where
  /// nothing is recorded (`ContextOptions::debug_level` 0 without a timeline).
  [[nodiscard]] std::optional<double> hidden_share() const noexcept;

  /// Bytes of all gradients of this rank.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Bytes of the reducer's memory for this rank's buckets that are not reduced in place; the first step may
  /// change it.
  [[nodiscard]] std::size_t packed_bytes() const noexcept;
  /// Number of buckets; the first step may change it.
  [[nodiscard]] std::size_t buckets() const noexcept;
  /// Bytes of the largest bucket, gradients with rows excluded.
  [[nodiscard]] std::size_t largest_bucket() const noexcept;

 private:
  struct State;
  friend struct ReducerAccess;
  std::unique_ptr<State> state_;
};

}  // namespace ddl
