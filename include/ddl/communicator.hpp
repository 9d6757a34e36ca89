#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "ddl/data_type.hpp"
#include "ddl/elements.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/rank_map.hpp"
#include "ddl/work.hpp"

namespace ddl {

namespace collectives {
class CommunicatorImpl;
}

/// The 16-bit type in which sums of f32 travel between hosts, and the memory for error feedback.
///
/// Each rank rounds a value before it sends it, and rounds a result where it is computed, so all ranks end
/// with the same bits. Nothing is rounded inside a host or in reproducible reductions. With `kept` and
/// `left`, the call adds the rounding errors of this rank's previous call to the values that it rounds (error
/// feedback: Seide et al. 2014; Karimireddy et al. 2019).
struct Wire {
  DataType type = DataType::bf16;  ///< bf16 or f16.
  /// The rounding errors of the previous call: `Communicator::residual_size` elements, zeros before the first
  /// call. Empty: no error feedback.
  std::span<const float> kept = {};
  std::span<float> left = {};  ///< Receives the rounding errors of this call; as many elements as `kept`.
};

/// A group of ranks and the collectives among them. A handle: copies refer to the same group.
///
/// Order: every rank calls the same collectives of a communicator in the same order, with the same count,
/// type, op and root. `_async` calls on different communicators may come in any order. The other calls block
/// until this rank's part is complete. Any thread may call, but the program must give the calls one order
/// that is the same on all ranks.
///
/// Buffers: input and output may be the same memory ("in place"; each collective says what that means for
/// it), or must not overlap. Counts are in elements, up to what memory holds. Each collective takes spans or
/// vectors of any element type, or addresses with a count and a type. Memory from `allocate`, and memory of
/// ranks that are threads of one process, is reduced between ranks of a host without copies; other memory is
/// copied.
///
/// Plans: calls of one size class (four classes per octave of bytes) share a plan, which `topology::Planner`
/// chooses for the ranks' topology at the first call of the class; see `plan`. That call also costs a
/// comparison, by which all ranks verify that they call the same thing and have the same plan. With n ranks,
/// N bytes, alpha seconds per message and beta seconds per byte, a ring costs 2(n-1) alpha + 2N beta (n-1)/n
/// (Patarasuk and Yuan, 2009); a hierarchy over H hosts sends 2N(H-1)/H bytes over each host's network link;
/// a tree or a direct exchange takes fewer steps.
///
/// Numbers: all ranks end with the same bits, and a plan gives the same bits on every run. For 16-bit floats,
/// each rank's reductions accumulate in f32, and partial sums travel in the data's type (one rounding per
/// hop).
///
/// With `ContextOptions::reproducible`, reductions of floats give the same bits for a given number of ranks,
/// whatever the plans, hosts, placement and cuts of the data. `sum` and `avg` add integers on a grid that
/// each element has for itself and round once at the end: closer to the exact result than adding floats, at
/// 1.75 times the bytes (f64, f16, bf16: 2). `min` and `max` cost no additional bytes (16-bit: 1.5 times),
/// `prod`, in rank order, costs n/2 times the bytes. All NaN results have one bit pattern. Each such
/// communicator counts as four towards the limit that `split` names.
///
/// Errors: `invalid_argument` (null data, unknown root, type or op, buffers that overlap), `timeout` (a peer
/// did not arrive before the deadline; the message names the collective, the plan and the peers), `mismatch`
/// (at the first use of a plan: another rank called something else or has another plan), `peer_failed`,
/// `transport` (also after the context has been destroyed). After any of them but `invalid_argument`, every
/// later call fails too. `_async` calls throw errors of their arguments and report all others through `Work`.
class Communicator {
 public:
  /// For the library itself; users get communicators from `Context::communicator`, `split` and `subgroup`.
  explicit Communicator(std::shared_ptr<collectives::CommunicatorImpl> impl);

  /// This rank's number in this communicator, 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// Number of ranks.
  [[nodiscard]] int size() const noexcept;
  /// The host of each rank. Valid as long as a copy of this communicator exists.
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept;

  /// Reduces in place: afterwards `values` holds, on every rank, the reduction of all ranks' `values`.
  void all_reduce(Elements values, ReduceOp op = ReduceOp::sum) {
    all_reduce(values.data(), values.data(), values.size(), values.type(), op);
  }
  /// Starts an all_reduce in place.
  Work all_reduce_async(Elements values, ReduceOp op = ReduceOp::sum) {
    return all_reduce_async(values.data(), values.data(), values.size(), values.type(), op);
  }
  /// Afterwards `output` holds, on every rank, the reduction of all ranks' `input`. Both have the same number
  /// and type of elements. In place: `output` is `input`.
  void all_reduce(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  /// Starts such an all_reduce.
  Work all_reduce_async(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  /// The same for `count` elements of `type` at addresses.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
  /// The same in place.
  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
    all_reduce(data, data, count, type, op);
  }
  /// Starts such an all_reduce at addresses.
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);

  /// Starts a sum in place that travels in 16 bits between hosts. All ranks give the same `Wire::type`.
  /// Throws `invalid_argument` for another type than bf16 or f16, and for `kept` or `left` of another size
  /// than `residual_size`.
  Work all_reduce_async(std::span<float> values, const Wire& wire);

  /// `input` holds size() pieces of as many elements as `output`; afterwards `output` holds the reduction of
  /// all ranks' piece number rank(). In place: `output` is that piece of `input`; the other pieces are then
  /// undefined.
  void reduce_scatter(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  /// Starts a reduce_scatter.
  Work reduce_scatter_async(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  /// The same at addresses; `count` is the number of elements of one piece.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
  /// Starts a reduce_scatter at addresses.
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
  /// Starts a reduce_scatter of sums that travels in 16 bits between hosts: see `all_reduce_async`.
  Work reduce_scatter_async(const float* input, float* output, std::size_t count, const Wire& wire);
  /// Number of elements of `Wire::kept` and `Wire::left` on this rank, for an all_reduce or reduce_scatter
  /// that is called with `count`. Depends on the plan, which is chosen here if it does not exist yet. 0 where
  /// nothing is rounded. Not collective. Throws `invalid_argument` for a `wire` other than bf16 or f16.
  [[nodiscard]] std::size_t residual_size(topology::Collective collective, std::size_t count, DataType wire);

  /// Afterwards `output`, size() pieces of as many elements as `input`, holds every rank's `input` in rank
  /// order. In place: `input` is piece number rank() of `output`.
  void all_gather(ConstElements input, Elements output);
  /// Starts an all_gather.
  Work all_gather_async(ConstElements input, Elements output);
  /// The same at addresses; `count` is the number of elements of one piece.
  void all_gather(const void* input, void* output, std::size_t count, DataType type);
  /// Starts an all_gather at addresses.
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type);

  /// Copies `root`'s `values` into every rank's `values`.
  void broadcast(Elements values, int root = 0) {
    broadcast(values.data(), values.data(), values.size(), values.type(), root);
  }
  /// Starts such a broadcast.
  Work broadcast_async(Elements values, int root = 0) {
    return broadcast_async(values.data(), values.data(), values.size(), values.type(), root);
  }
  /// Afterwards every rank's `output` holds `root`'s `input`, `count` elements. Other ranks' `input` is not
  /// read and may be null. In place: `output` is `input`.
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root);
  /// Starts such a broadcast.
  Work broadcast_async(const void* input, void* output, std::size_t count, DataType type, int root);

  /// Afterwards `root`'s `values` holds the reduction of all ranks' `values`; other ranks' are unchanged.
  void reduce(Elements values, ReduceOp op = ReduceOp::sum, int root = 0) {
    reduce(values.data(), values.data(), values.size(), values.type(), op, root);
  }
  /// Starts such a reduce.
  Work reduce_async(Elements values, ReduceOp op = ReduceOp::sum, int root = 0) {
    return reduce_async(values.data(), values.data(), values.size(), values.type(), op, root);
  }
  /// Afterwards `root`'s `output` holds the reduction of all ranks' `input`, `count` elements. Other ranks'
  /// `output` is not written to and may be null. In place: `output` is `input`.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root);
  /// Starts such a reduce.
  Work reduce_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root);

  /// Returns after every rank has called it.
  void barrier();
  /// Starts a barrier: the work is complete after every rank has called it.
  Work barrier_async();

  /// Makes a communicator of the ranks that give the same `color`, ordered by `key`, then by rank in this
  /// one. Collective over this communicator, and blocking. Throws `invalid_argument`, agreed, if any rank
  /// gives a negative color (every rank takes part), and `unsupported`, agreed, if the job has as many
  /// communicators as its messages can tell apart: 4,096 through UCX, 32,768 inside a host, through MPI by
  /// its largest tag.
  [[nodiscard]] Communicator split(int color, int key = 0);
  /// Makes a communicator of `ranks`, which are numbers in this one, in this order. Exactly these ranks call
  /// it, and block. They agree through `greatest`, which must return the greatest of the values that these
  /// ranks pass to it, as an MPI_Allreduce among them would; it is called a few times. Throws
  /// `invalid_argument` if a rank is unknown or listed twice, or if this rank is missing, and `unsupported`
  /// as `split` does.
  [[nodiscard]] Communicator subgroup(std::span<const int> ranks,
                                      const std::function<std::int64_t(std::int64_t)>& greatest);

  /// The plan that calls of `bytes` bytes use, with sums that travel as `wire` if it is given. `bytes` are
  /// those of one rank's buffer: for reduce_scatter its whole input, for all_gather its whole output. Not
  /// collective; chooses the plan if no call has. Throws `invalid_argument` for a barrier, which has no plan.
  [[nodiscard]] topology::Plan plan(topology::Collective collective, std::uint64_t bytes, DataType type,
                                    std::optional<DataType> wire = {}) const;

 private:
  std::shared_ptr<collectives::CommunicatorImpl> impl_;
};

}  // namespace ddl
