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

/// What sums of f32 travel as between hosts. Each value is rounded before it is sent, and the result where it
/// is, so all ranks end with the same bits; inside a host, and where reductions are reproducible, nothing is
/// rounded. With `kept` and `left`, error feedback (Seide et al. 2014; Karimireddy et al. 2019): what the
/// last call's roundings on this rank left is added to what this call rounds.
struct Wire {
  DataType type = DataType::bf16;  ///< bf16 or f16.
  /// `Communicator::residual_size` elements, zeros before the first call; empty: no error feedback.
  std::span<const float> kept = {};
  std::span<float> left = {};  ///< As many: what the next call keeps.
};

/// Ranks and the collectives among them.
///
/// Every rank calls the same collectives of a communicator in the same order, with the same count, type, op
/// and root. Between communicators any order will do for `_async` calls. The others block until this rank's
/// part is done. Any thread may call, but the ranks' calls must still come in one order.
///
/// Input and output may be the same memory ("in place"), or not overlap; what in place means is said for
/// each. Memory from `allocate` is reduced without copies between ranks of a host, as is that of threads of
/// one process; other memory at the price of copies. Counts are of elements, up to what memory holds.
///
/// How each is done is chosen for the ranks' topology (`topology::Planner`) when a call of its size, one of
/// four classes an octave, is first made; see `plan`. With n ranks, N bytes, alpha seconds a message and beta
/// seconds a byte, a ring costs 2(n-1) alpha + 2N beta (n-1)/n (Patarasuk and Yuan, 2009), a hierarchy over H
/// hosts sends 2N(H-1)/H bytes over a host's network link, a tree or direct exchange takes fewer steps. The
/// first call of a class costs the planning, and a comparison in which all ranks make sure that they call and
/// plan alike.
///
/// All ranks end with the same bits; a plan gives the same bits on every run. 16-bit floats: each rank's
/// reductions accumulate in f32, partial sums travel in the data's type (one rounding a hop).
///
/// With `ContextOptions::reproducible`, reductions of floats give the same bits for a number of ranks
/// whatever the plans, hosts, placement and cuts of the data. `sum` and `avg` are sums of integers on a grid
/// that each element has for itself, rounded once at the end: closer to the exact result than adding floats,
/// and 1.75 times the bytes (f64, f16, bf16: 2). `min` and `max` cost no more bytes (16-bit: 1.5 times),
/// `prod`, in the order of ranks, n/2 times. Results that are NaN are all one NaN. Such a communicator takes
/// up the numbers of four.
///
/// Errors: `invalid_argument` (null data, unknown root, buffers that overlap), `timeout` (a peer did not
/// arrive before the deadline; the message names the collective, the plan and the peers), `mismatch` (at the
/// first use of a plan: another rank called something else or has another plan), `peer_failed`, `transport`.
/// `_async` calls throw what is wrong with their arguments, and leave the rest to `Work`.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<collectives::CommunicatorImpl> impl);

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept;

  // Each takes spans and vectors of any element type, or addresses, a count and a type.

  /// Afterwards `output` holds the reduction of all ranks' `input`s. `values`: in place.
  void all_reduce(Elements values, ReduceOp op = ReduceOp::sum) {
    all_reduce(values.data(), values.data(), values.size(), values.type(), op);
  }
  Work all_reduce_async(Elements values, ReduceOp op = ReduceOp::sum) {
    return all_reduce_async(values.data(), values.data(), values.size(), values.type(), op);
  }
  void all_reduce(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  Work all_reduce_async(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
    all_reduce(data, data, count, type, op);
  }
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);

  /// Sums in place; all ranks give the same type of wire.
  Work all_reduce_async(std::span<float> values, const Wire& wire);

  /// `input` holds size() pieces of `count` elements; afterwards `output` holds the reduction of all ranks'
  /// piece number rank(). In place: `output` is that piece of `input`; the other pieces are then undefined.
  void reduce_scatter(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  Work reduce_scatter_async(ConstElements input, Elements output, ReduceOp op = ReduceOp::sum);
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
  /// Sums.
  Work reduce_scatter_async(const float* input, float* output, std::size_t count, const Wire& wire);
  /// Elements of residual that a call of this rank has (see `Wire`): of an all_reduce or reduce_scatter of
  /// `count` elements, as they are called with. Costs the planning of the call, and depends on the plan.
  [[nodiscard]] std::size_t residual_size(topology::Collective collective, std::size_t count, DataType wire);

  /// Afterwards `output` holds every rank's `count` elements of `input`, by rank. In place: `input` is piece
  /// number rank() of `output`.
  void all_gather(ConstElements input, Elements output);
  Work all_gather_async(ConstElements input, Elements output);
  void all_gather(const void* input, void* output, std::size_t count, DataType type);
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type);

  /// Afterwards `output` holds `root`'s `input`; other ranks' `input` is not looked at and may be null.
  void broadcast(Elements values, int root = 0) {
    broadcast(values.data(), values.data(), values.size(), values.type(), root);
  }
  Work broadcast_async(Elements values, int root = 0) {
    return broadcast_async(values.data(), values.data(), values.size(), values.type(), root);
  }
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root);
  Work broadcast_async(const void* input, void* output, std::size_t count, DataType type, int root);

  /// Afterwards `root`'s `output` holds the reduction of all ranks' `input`s; other ranks' `output` is not
  /// touched and may be null.
  void reduce(Elements values, ReduceOp op = ReduceOp::sum, int root = 0) {
    reduce(values.data(), values.data(), values.size(), values.type(), op, root);
  }
  Work reduce_async(Elements values, ReduceOp op = ReduceOp::sum, int root = 0) {
    return reduce_async(values.data(), values.data(), values.size(), values.type(), op, root);
  }
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root);
  Work reduce_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root);

  /// Returns after every rank has called it.
  void barrier();
  Work barrier_async();

  /// A communicator of the ranks that give the same `color`, in order of `key`, then of rank here.
  /// Collective, and blocking. Throws `invalid_argument` for a negative color: all ranks take part.
  [[nodiscard]] Communicator split(int color, int key = 0);
  /// A communicator of `ranks`, numbers here, in this order: each of these ranks calls this, and no other
  /// does. They agree through `greatest`, which must return the greatest of the values that these ranks give
  /// it, as an MPI_Allreduce among them would; it is called a few times. Throws `invalid_argument` if a rank
  /// is unknown or listed twice, or this one is missing.
  [[nodiscard]] Communicator subgroup(std::span<const int> ranks,
                                      const std::function<std::int64_t(std::int64_t)>& greatest);

  /// The plan that is used for calls of `bytes` bytes: of all ranks' data together for reduce_scatter (their
  /// input) and all_gather (their output), and with this wire. Not collective. Throws `invalid_argument` for
  /// a barrier, which needs none.
  [[nodiscard]] topology::Plan plan(topology::Collective collective, std::uint64_t bytes, DataType type,
                                    std::optional<DataType> wire = {}) const;

 private:
  std::shared_ptr<collectives::CommunicatorImpl> impl_;
};

}  // namespace ddl
