#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// One rank's program for `count` elements. O(its steps + dimensions) time and memory, and a look at each
/// rank of the order.
///
/// The buffer is cut into the plan's chunks. Each chunk goes through the phases; a phase is a number of
/// rounds, the same for all groups. Chunk c starts c rounds after chunk 0, and steps are listed by time in
/// that picture (round + c, then c, then as the algorithm has them), alike on all ranks: so streams carry
/// chunks of different phases in turn, nothing deadlocks, and the slowest dimension is kept busy while the
/// others work ahead. Both ends of a message have it in the same round of the same chunk, and no message
/// waits for another one of its round.
///
/// In a ragged first dimension the buffer is cut at the union of all groups' shard boundaries: each segment
/// has one owner in every group, and the dimensions after it run over its owners.
///
/// An all-reduce is finished where its sums are first complete, before they go down. In a broadcast, a group
/// of the first dimension gets the data by the member with the root's index in its own group, or by its
/// first one if it has fewer. Empty pieces have no steps; a count of 0 has none at all.
///
/// Over shared memory, one_shot, two_shot and halving_doubling reduce what the others sent with one
/// receive_reduce after the other of the same range, which `fuse` makes one pass. Elsewhere they are received
/// side by side.
///
/// Scratch: none with ring and tree, over shared memory with two_shot and halving_doubling, and with the
/// latter if all factors are 2. In a group of p that exchanges N elements of a chunk: two_shot of p > 2 and
/// halving_doubling less than N, one_shot N(p-1), over shared memory N. The phases of a chunk share it, at
/// most 4 chunks have their own, and the others take turns.
///
/// Errors: `invalid_argument` for a plan that `require_valid` refuses, and a rank or root that does not
/// exist.
Program lower(const Plan& plan, int rank, std::size_t count, int root = 0);

/// All ranks' programs. 5 million steps take 0.1 s and 32 bytes each.
Schedule lower_all(const Plan& plan, std::size_t count, int root = 0);

/// At most so many elements, or bytes, are one message.
struct MessageSizes {
  std::size_t inside_host;
  std::size_t between_hosts;

  /// The same in elements of so many bytes.
  [[nodiscard]] constexpr MessageSizes of(std::size_t element_bytes) const noexcept {
    return {inside_host / element_bytes, between_hosts / element_bytes};
  }
};

/// Bytes at which the engine cuts steps. Inside a host a piece stays in a core's cache, and few have to be
/// told of it. Between hosts many small ones are under way at a time: on TCP, few large ones leave links idle
/// whenever one of them waits for its window or its rank (measured on 4x4 ranks over 1 Gb/s: 0.70 to 0.82 of
/// the rate with 256 KiB, 0.87 to 1.0 with 32 KiB).
constexpr MessageSizes message_bytes = {std::size_t{256} << 10, std::size_t{32} << 10};

/// Whether a peer, a rank of the schedule, shares memory with the rank whose program it is.
using SharesMemory = std::function<bool(int peer)>;

/// Cuts every step of more than `most` elements into as few pieces as that takes, their sizes at most one
/// apart. Both ends of a message have one length and are cut alike, so all ranks' programs must be cut by
/// the same numbers, and before they are fused. Steps of one range that follow one another and are cut alike
/// are listed piece by piece (the first pieces of all of them, then the second ones), so that a piece is
/// passed on while the next one comes in; steps without a peer are cut as those before them. A schedule that
/// was valid is valid. O(resulting steps). Throws `invalid_argument` for 0.
Program cut(Program program, const MessageSizes& most, const SharesMemory& shares);

/// Joins reductions of what peers have in shared memory into one range, and what follows them there, into
/// runs (see `Program`): each reduction depends on the one before it alone, so none waits for a part of it.
/// Phases in which a part goes through the network stay as they are, so that the members of a group round at
/// the same places; all groups of a dimension do if all of them share memory, or none. The order of each
/// stream stays. O(S log S).
Program fuse(Program program, const SharesMemory& shares);

/// Whether MPI carries all of a plan's messages: then no rank reads the memory of another one.
bool is_by_mpi_alone(const Plan& plan);

/// What ranks that are placed on a topology run of a plan: lowered, cut and fused as their engines do it.
/// Ranks on `cpu` devices of one host share memory. Ranks on other devices run a plan's phases by groups, not
/// by steps: their schedule is the plan as it is lowered. Cost and errors as `lower_all`.
///
/// `most_messages`: with more of them, pieces are longer than the engine's, for a simulation that is to be
/// quick. What is not cut at all may still have more.
Schedule schedule_to_run(const Plan& plan, std::size_t count, int root, const Topology& topology,
                         const Placement& placement, std::size_t most_messages = SIZE_MAX);

/// Dissemination barrier over a buffer of `count` elements: ceil(log2 n) rounds (Hensgen, Finkel and Manber,
/// 1988, "Two algorithms for barrier synchronization"). After it, each rank has heard of each: with
/// `ReduceOp::max`, whose operands may come in any number of times, all have the greatest of each element. It
/// needs no plan. Throws `invalid_argument` for a rank that does not exist.
Program lower_barrier(int ranks, int rank, std::size_t count = 1);

}  // namespace ddl::topology
