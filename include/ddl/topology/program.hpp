#pragma once

#include <cstddef>
#include <cstdint>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// Lowers a plan to the steps of `rank` for a buffer of `count` elements (all pieces for reduce_scatter and
/// all_gather). `root`: of a broadcast or reduce. O(steps + ranks + dimensions) time and memory.
///
/// The buffer is cut into the plan's chunks, and each chunk passes through the phases. A phase has a number
/// of rounds, the same for all groups. Chunk c starts c rounds after chunk 0, and steps are listed by time in
/// this picture (round + c, then c, then in the algorithm's order), alike on all ranks: streams then carry
/// chunks of different phases in turn, nothing deadlocks, and the slowest dimension stays busy while the
/// others work ahead. Both ends of a message have it in the same round of the same chunk, and no message
/// waits for another of its round.
///
/// In a ragged first dimension the buffer is cut at the union of all groups' shard boundaries: each segment
/// has one owner in every group, and the dimensions after it run over the owners.
///
/// An all-reduce is finished where its sums are first complete, before they go down. In a broadcast, a group
/// of the first dimension receives the data at the member with the root's index in the root's group, or at
/// its first member if it is too small. Empty pieces have no steps; a count of 0 has none.
///
/// Over shared memory, one_shot, two_shot and halving_doubling reduce the peers' data by consecutive
/// receive_reduce steps of the same range, which `schedule_to_run` joins into one pass. Otherwise the peers'
/// data is received into scratch first.
///
/// Scratch: none for ring and tree, none for two_shot and halving_doubling over shared memory, and none for
/// halving_doubling if all prime factors are 2. In a group of p that exchanges N elements of a chunk,
/// two_shot with p > 2 and halving_doubling need less than N elements, one_shot N(p-1), and N over shared
/// memory. The phases of a chunk share scratch memory; at most 4 chunks have their own, and the others take
/// turns.
///
/// Throws `invalid_argument` for a plan that `require_valid` refuses, a rank or root that does not exist,
/// and, for reduce_scatter and all_gather, a count that is no multiple of the number of ranks.
Program lower(const Plan& plan, int rank, std::size_t count, int root = 0);

/// The programs of all ranks. Throws as `lower` does. 5 million steps take 0.1 s and 32 bytes each.
Schedule lower_all(const Plan& plan, std::size_t count, int root = 0);

/// The schedule that ranks placed on a topology run for a plan: lowered, cut and fused as their engines do
/// it. Ranks on `cpu` devices of one host share memory. If a rank is on another device, ranks run the plan's
/// phases by groups instead of steps, and the schedule is the plan as lowered. Cost and errors as
/// `lower_all`; also throws `invalid_argument` for a placement that does not fit the topology or the plan.
///
/// `most_messages`: if the schedule would have more, messages are longer than the engine's, for a fast
/// simulation. A schedule may still have more messages if cutting is not what makes them many.
Schedule schedule_to_run(const Plan& plan, std::size_t count, int root, const Topology& topology,
                         const Placement& placement, std::size_t most_messages = SIZE_MAX);

/// The program of a dissemination barrier over a buffer of `count` elements, at least 1: ceil(log2 n) rounds
/// (Hensgen, Finkel and Manber, 1988, "Two algorithms for barrier synchronization"). After it, each rank has
/// heard of every other; with `ReduceOp::max`, for which repeated operands do not matter, all ranks have the
/// greatest value of each element. Needs no plan. Throws `invalid_argument` for a rank that does not exist.
Program lower_barrier(int ranks, int rank, std::size_t count = 1);

}  // namespace ddl::topology
