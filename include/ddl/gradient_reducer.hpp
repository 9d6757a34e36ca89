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

/// One parameter's gradient on this rank, `{"w", gradient}` of a span or a vector.
struct Gradient {
  std::string name;
  /// f32, f64, f16 or bf16, in the memory of the host or of this rank's device (f64: host only). Must stay
  /// where they are while the reducer lives.
  Elements values;
  /// Elements of a row, for a gradient of which a step touches few rows, such as an embedding's: see
  /// `GradientReducer::ready`. 0: no rows.
  std::size_t row_width = 0;
  /// For trainers that keep a gradient for each sample or thread: further vectors of the type and size of
  /// `values`, in the memory of the host, f32 or f64. `ready` adds them to `values` and zeroes them.
  std::vector<Elements> summands = {};
};

/// Those of a model's parameters that have one, in order; a gradient's index is its place among them.
/// Throws `invalid_argument` for a gradient of another size than its parameter.
[[nodiscard]] std::vector<Gradient> gradients_of(const Model& model);

/// What the trainer's backward pass leaves in the gradients.
enum class GradientKind {
  sum,   ///< Sums over this rank's items; the weight (number of items) is given to `wait`, or to `begin`.
  mean,  ///< Means over this rank's items; the weight is given to `begin`, before backward.
};

/// A kind that somebody has chosen: there is none without.
struct ChosenGradientKind {
  ChosenGradientKind(GradientKind chosen) noexcept : kind(chosen) {}
  operator GradientKind() const noexcept { return kind; }
  GradientKind kind;
};

struct GradientReducerOptions {
  ChosenGradientKind gradients;  ///< No default, and no options without: a wrong guess is a wrong model.
  /// Gradients are reduced in buckets of at most this many bytes. Same on all ranks. 0: chosen, and told at
  /// -dbg_level 1. On hosts so that little is left when backward ends: the fewest bytes that these links
  /// carry at 1.05 times their least cost a byte, and a twentieth of all at most; where all takes less than
  /// 0.1 ms, what makes the last bucket and 4 us for each bucket take least. On devices a twentieth, between
  /// 1 and 25 MiB.
  std::size_t bucket_bytes = 0;
  /// Each bucket is reduced as soon as its gradients are there; else all in `wait`, after backward.
  bool overlap = true;
  /// What travels between hosts: f32, or bf16 or f16, with error feedback (see `Wire`, and `DeviceWire` for
  /// gradients on devices). The first step travels in f32. Needs no loss scaling for bf16; sums beyond 65,504
  /// are infinite in f16. Rows (`Gradient::row_width`) stay f32. Not in reproducible contexts.
  /// Error feedback takes memory: on hosts twice what this rank rounds, on devices the gradients' size.
  DataType wire = DataType::f32;
  /// Each rank ends with the means of its own part of the parameters alone: see `shards` and `gather`.
  bool sharded_update = false;
  /// Whether the gradients are left as sums, for an optimiser that multiplies by `ReducedStep::scale` in a
  /// pass of its own; else they are means.
  bool leave_sums = false;
  /// On devices: whether there will be micro-batches (`no_sync`) of means, which take memory of their size.
  bool micro_batches = false;
};

/// What a step's reduction ends with: the same on all ranks.
struct ReducedStep {
  double weight = 0;  ///< Of all ranks together.
  double scale = 1;   ///< What makes means of what the gradients hold: 1, unless they are left as sums.
  double norm = 0;  ///< Of the mean gradients: the root of the sum of squares over all of them, within 1e-6.
  bool finite = true;       ///< Whether all of them are; no rank should update its model else.
  std::uint64_t bytes = 0;  ///< Of this rank's gradients that were reduced, as they travelled between hosts.
};

/// Elements [first, first + count) of a gradient, or of the parameter that it belongs to.
struct GradientPiece {
  std::size_t gradient = 0;  ///< Its index, in order of registration.
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(const GradientPiece&, const GradientPiece&) = default;
};

/// Replaces each rank's gradients by their weighted mean over all ranks:
/// sum_r(w_r * mean_r) / sum_r(w_r) = sum_r(sum_r) / sum_r(w_r), so ragged batches (ranks with
/// other numbers of target tokens, even none) weigh what they hold.
///
/// Per step: [`begin(weight)`, for means], `ready(i)` once for each gradient, in any order, as soon as
/// backward has finished it, then `wait`. All ranks end with the same bits. A rank without items takes
/// part with weight 0: its means are ignored (they may be NaN), its sums must be 0.
///
/// **Buckets** hold gradients in the order in which they become ready. The first step goes by the reverse
/// order of registration, and learns the order: the mean over all ranks of each gradient's place. From then
/// on each bucket is reduced as soon as its gradients are there on this rank and the buckets before it have
/// been started, while backward goes on. A gradient larger than a bucket is cut. `state` holds what was
/// learned; a run that is resumed with it has the same buckets, and so the same bits, as one that went on. A
/// bucket whose gradients lie one after the other in memory, in order of registration, is reduced in place;
/// any other is packed into memory of the reducer's own. So one flat buffer (`GradientBuffer`), registered
/// front to back and finished in about the reverse order, costs neither copies nor memory, and the ranks of a
/// host reduce it where it is.
///
/// **Accumulation**: between `no_sync` and its end, `wait` ends a micro-batch without reducing anything; the
/// next one outside reduces all. Sums are added up by backward itself, which does not begin from zero again;
/// of means each micro-batch leaves its own, and the reducer adds them up, weighted, in memory of its own.
///
/// **Gradients that are missing**: `absent(i)` in place of `ready(i)` says that a step gives a gradient no
/// value on this rank; it counts as zeros. `has_gradient` says whether any rank had one.
///
/// **Rows**: a gradient with a `row_width` may be made ready with the rows that the step touched; the others
/// must hold zeros. Ranks then exchange a byte a row, and reduce the rows that any of them has touched, if
/// that is less than all; the result is the same. The norm and the mean count as for any other.
///
/// A weight that is given to `begin` is added up over all ranks meanwhile, so that buckets become means
/// during backward too, in `ready`; with one that is given to `wait` they do then. With a sharded update
/// buckets stay as they are in the first step, and only their order is learned.
///
/// Cost: an all-reduce for each bucket, two of a few doubles, one pass over the gradients for the weight (two
/// for means; `leave_sums` saves one), one over 1/n of them for the norm. In reproducible contexts the norm
/// has the same bits whatever the buckets, and costs some 2 ns for each of those elements.
///
/// **On devices** (constructed with a `DeviceCommunicator`; link ddl::cuda) the same is queued on a stream of
/// the reducer's own: a gradient is final once what is queued on the stream of its `ready` is done, and what
/// is queued on the stream of `finish` behind it sees the results. Memory from `DeviceCommunicator::allocate`
/// (where all ranks are threads of one process: any) is reduced where it is, other memory is packed into
/// memory of the reducer's own, of which there is as much as of gradients. The host waits for no device, but
/// in the first step's `finish`, which learns the order, in the first `gather`, and in `result`. With rows,
/// `finish` waits for the other ranks to have reported theirs (not for their devices), and at most for the
/// device to have come to this step; staging for the largest gradient with rows is taken. `wait` is `finish`
/// on the default stream, and `result`. Errors of a wrong weight, or of a gradient that was not reported, are
/// thrown by `finish` on the rank that has them, and reach the others' `result` (weight) or
/// `ReducedStep::finite`; others are those of `DeviceCommunicator`. Streams of `ready` must live until
/// `finish`; all calls come from the thread that made the communicator. A stream that is being captured is
/// refused (`unsupported`): a step's weight and order are the host's. In reproducible contexts gradients and
/// norm have the bits of the host's.
///
/// Between `wait` and the next `ready` the gradients are the trainer's; from a gradient's `ready` on until
/// `wait` they must be left alone. `ready` and `absent` may be called by any thread, the others by one; once
/// another thread than that of `wait` has made gradients ready, `wait` gives those that are missing half of
/// the context's deadline. `context` must stay where it is while the reducer lives. Errors:
/// - construction is collective; `mismatch` if ranks registered other gradients or options (names the
///   first difference and its ranks), `invalid_argument` for gradients that overlap or options that cannot
///   be;
/// - `invalid_argument`, on the calling rank, for a wrong pairing of `begin`/`ready`/`wait`, an unknown
///   index or row, or a gradient reported twice;
/// - `invalid_argument` from `wait`, the same on every rank, for a negative or non-finite weight or a
///   gradient not reported on any of them, or a total weight of 0. The step is over then, its
///   gradients undefined; the next one can begin;
/// - those of `Communicator`, which name the oldest bucket that is not done, and its gradients. While a rank
///   is in backward the exit report names the gradient that its next bucket waits for.
class GradientReducer {
 public:
  GradientReducer(const Context& context, std::vector<Gradient> gradients, GradientReducerOptions options);
  /// For gradients in the memory of this rank's device. `communicator` must outlive it.
  GradientReducer(DeviceCommunicator& communicator, std::vector<Gradient> gradients,
                  GradientReducerOptions options);
  /// Waits for what was started.
  ~GradientReducer();
  GradientReducer(GradientReducer&&) noexcept;
  GradientReducer& operator=(GradientReducer&&) noexcept;

  /// Starts a step over `weight` items. Gradient sums may do without it and give the weight to `wait`; all
  /// ranks do the same.
  void begin(double weight);
  /// Gradient `index` (order of registration) is final on this rank for this step.
  void ready(std::size_t index, DeviceStream stream = nullptr);
  /// The same; of its rows, none but these hold anything but zeros. In any order, also repeatedly.
  void ready(std::size_t index, std::span<const std::int32_t> rows, DeviceStream stream = nullptr);
  /// Gradient `index` gets no value on this rank in this step; its memory is not read.
  void absent(std::size_t index);
  /// Ends a step of gradient sums over `weight` items.
  ReducedStep wait(double weight);
  /// Ends a step whose weight was given to `begin`.
  ReducedStep wait();

  /// On devices: queues the end of a step of gradient sums over `weight` items, or, without it, of one whose
  /// weight was given to `begin`.
  void finish(double weight, DeviceStream stream);
  void finish(DeviceStream stream);
  /// Of the last step, in the device's memory: for what is queued on the stream of `finish` behind it. Null
  /// on hosts.
  [[nodiscard]] const DeviceOutcome* outcome() const noexcept;
  /// On devices: of the last step; waits for it. Once a step, if at all.
  ReducedStep result();

  /// While it lives, `wait` or `finish` ends a micro-batch; `wait` returns this rank's weight so far.
  class [[nodiscard]] NoSync {
   public:
    NoSync(NoSync&&) = delete;
    ~NoSync();

   private:
    friend GradientReducer;
    explicit NoSync(bool& scope) noexcept;
    bool& scope_;
  };
  NoSync no_sync();

  /// Of the last step: whether any rank had a value for the gradient. On devices the first call of a step is
  /// collective.
  [[nodiscard]] bool has_gradient(std::size_t index) const;
  /// Of the last step, for a gradient with rows: those that any rank touched, ascending.
  [[nodiscard]] std::span<const std::uint32_t> touched_rows(std::size_t index) const;

  /// Sharded update: the elements whose means this rank has after `wait`, and is to update; they stay the
  /// same. All ranks together have all, and a few (less than n of a gradient with rows) more than once: each
  /// rank computes those alike.
  [[nodiscard]] std::span<const GradientPiece> shards() const;
  /// Gives every rank the others' updated elements of `parameters`, which are as the gradients in number,
  /// order and size, and on devices in their memory, in the order of the stream. Cost: an all-gather for each
  /// bucket. Collective.
  void gather(const std::vector<Parameter>& parameters, DeviceStream stream = nullptr);

  /// What this reducer has found out and what its sums depend on, as JSON: the same on all ranks.
  [[nodiscard]] std::string state() const;
  /// Goes on as the reducer that gave the state: before the first step. Says so in the log where as many
  /// ranks reduce by other plans. Collective. Throws, agreed: `corrupt_data` for what is no state, `mismatch`
  /// for one of other gradients or options.
  void restore(std::string_view state);
  /// What 16-bit wires owe to the next step: this rank's part, to be saved and filled while no step is under
  /// way. Empty for f32, and on hosts before the first step. Views, on devices of their memory, valid until
  /// `restore`.
  [[nodiscard]] std::vector<NamedTensor> residuals();

  /// Bytes of all gradients.
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t buckets() const noexcept;
  /// Bytes of the largest bucket, but for gradients with rows.
  [[nodiscard]] std::size_t largest_bucket() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl
