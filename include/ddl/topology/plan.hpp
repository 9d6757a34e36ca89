#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/data_type.hpp"
#include "ddl/topology/decomposition.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// What the members of a group of one dimension do. p members, N bytes that each holds of what is to be
/// reduced, alpha us a message, beta us a byte.
///
/// In an all-reduce, "up" is done from the first dimension to the last, "down" back from the last to the
/// first:
///
/// A reduce-scatter is the way up alone, an all-gather the way down, in the order of the dimensions that they
/// have there: with ring, halving_doubling and two_shot. A piece of the result belongs to a rank, wherever
/// that is in the grid: what a member sends is a message for each range of neighbouring ranks' pieces. Reduce
/// is a broadcast backwards.
enum class Algorithm : std::uint8_t {
  /// Up: ring reduce-scatter, p-1 steps of N/p; down: ring all-gather, the same (Patarasuk and Yuan, 2009).
  /// Broadcast and reduce: a chain, pipelined in chunks.
  ring,
  /// As ring, but in exchanges of groups of f for each prime factor f of p: recursive halving and doubling if
  /// p is a power of two (Rabenseifner, 2004). log2 p steps; the same bytes, the most of them between near
  /// members. Not for broadcast and reduce.
  halving_doubling,
  /// As ring, but each member sends each other one its piece at once: p-1 messages in one step.
  /// Broadcast: the root scatters, then all gather (van de Geijn, 1994): 2N(p-1)/p by the root, N(p-2)/p by
  /// each other one. Reduce: each member reduces its piece, and the root gathers them: N(p-1)/p by each.
  two_shot,
  /// Up: each member sends all it has to each other one and reduces what it gets: (p-1)N bytes, one step;
  /// down: nothing. The dimensions after it work on the same data p times, side by side. A decomposition
  /// into twos with one_shot everywhere is recursive doubling. Broadcast: the root sends to each other one.
  /// Reduce: each other one sends to the root, which adds N(p-1).
  one_shot,
  /// Up: binomial tree to the first member; the other members take no part in the dimensions after it; down:
  /// binomial tree back. ceil(log2 p) steps of N each way. Broadcast and reduce: a binomial tree.
  tree,
  /// Broadcast alone: two binary trees, each for half of the data, in which each member is a leaf at least
  /// once and so sends at most N (Sanders, Speck and Traeff, 2009).
  double_tree,
};

/// Families of plans: the letter of IBM's `-mode`.
enum class Mode : std::uint8_t {
  explore,             ///< p: everything; the least predicted time is taken. The default.
  rings,               ///< r: rings alone.
  nccl,                ///< n: one NCCL ring over all ranks, where NCCL is possible.
  nccl_per_dimension,  ///< b: a decomposition along the hosts, each dimension by NCCL where possible.
  scatter_gather,      ///< c: reduce-scatter and all-gather in each dimension.
  /// m: what an MPI library does that knows nothing of the wiring, over MPI: ranks in their order, one chunk,
  /// and the same algorithm for all of them. All-reduce: ring; halving_doubling (Rabenseifner) and recursive
  /// doubling (the number of ranks in primes, one_shot in each), unless it is prime; tree; one_shot between
  /// two. Broadcast: ring (a chain), two_shot (van de Geijn), tree. No hierarchy: of dimensions that are
  /// asked for, all have the same algorithm.
  mpi,
};

/// What carries a dimension's bytes.
enum class Carrier : std::uint8_t {
  shared_memory,
  cuda_ipc,  ///< Kernels that reach the memory of other devices.
  network,   ///< From where the data is: hosts' memory, or devices' by a UCX that knows it.
  mpi,
  nccl,
  host_memory,  ///< Of devices: page-locked memory, and what carries the hosts' data.
};

struct PlanDimension {
  Algorithm algorithm = Algorithm::ring;
  Carrier carrier = Carrier::shared_memory;
  /// What sums of f32 travel as in this dimension: bf16 or f16; none: f32. What is sent is rounded first, and
  /// so is a result that is sent on, where it is: all ranks end with the same bits. Not where members read
  /// one another's memory.
  std::optional<DataType> wire = {};

  friend bool operator==(const PlanDimension&, const PlanDimension&) = default;
};

/// How one collective is done: a value. What decides the steps: collective, decomposition, algorithms, order,
/// chunks, and carriers; the rest tells people why.
struct Plan {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;  ///< What it was chosen for; it can be lowered for any count.
  DataType type = DataType::f32;
  Mode mode = Mode::explore;
  Decomposition decomposition;
  std::vector<PlanDimension> dimensions = {
      PlanDimension{}};                  ///< One for each dimension of the decomposition.
  std::vector<int> order = {0};          ///< The rank at each position of the grid.
  std::string order_name = "as placed";  ///< "as placed", "by host", ...
  int chunks = 1;                        ///< 1 to 64, pipelined through the phases.

  double predicted_us = 0;
  std::vector<double> phase_us;     ///< Of each of `phases_of`, for one chunk and alone.
  double bound_us = 0;              ///< What no plan can beat on this topology: see `physical_bound`.
  std::uint64_t topology_hash = 0;  ///< 0: unknown.
  std::vector<std::string> notes;   ///< What was asked for and is not possible, with the reason.

  friend bool operator==(const Plan&, const Plan&) = default;
};

enum class PhaseKind : std::uint8_t {
  reduce_scatter,
  all_gather,
  reduce,
  broadcast,
  all_reduce,
  scatter,
  gather,
};

/// A stretch of a plan within one dimension.
struct Phase {
  PhaseKind kind;
  int dimension;

  friend bool operator==(const Phase&, const Phase&) = default;
};

/// Collectives that are done by plans: all but barrier.
std::span<const Collective> planned_collectives() noexcept;
/// Their names, as in "a, b or c".
std::string planned_names();
/// Whether it starts from one rank (broadcast) or ends at one (reduce).
constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::broadcast || collective == Collective::reduce;
}
/// Whether the buffer is one piece for each rank.
constexpr bool has_pieces(Collective collective) noexcept {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather;
}
/// What a dimension can do in a collective.
std::span<const Algorithm> algorithms_of(Collective collective) noexcept;
/// The type in which narrow messages of a plan travel: the wire of the dimensions that have one, else the
/// plan's type.
DataType wire_of(const Plan& plan) noexcept;
/// Elements of `bytes` of the plan's type, rounded up to what it can be lowered for: of reduce_scatter and
/// all_gather, a multiple of the number of ranks.
std::uint64_t elements_of(const Plan& plan);

/// Whether each dimension has a carrier between hosts' memory (shared_memory, network, mpi), or between
/// devices' (cuda_ipc, nccl, network, host_memory).
bool is_for_hosts(const Plan& plan) noexcept;
bool is_for_devices(const Plan& plan) noexcept;

/// In the order in which a chunk goes through them. Dimensions of size 1 have none. All-reduce: up, then
/// down. Reduce-scatter and all-gather: one of the two. Broadcast: from the last dimension to the first;
/// two_shot is a scatter and an all-gather. Reduce: from the first to the last; two_shot is a reduce-scatter
/// and a gather.
std::vector<Phase> phases_of(const Plan& plan);

/// 64 bits of what decides the steps (FNV-1a), the same on every machine. Ranks compare it before they use
/// a plan.
std::uint64_t hash(const Plan& plan);

std::string_view to_string(Algorithm algorithm) noexcept;
std::string_view to_string(Mode mode) noexcept;
char letter_of(Mode mode) noexcept;
/// "p", "r", ... Throws `invalid_argument` naming the letters.
Mode mode_from_letter(std::string_view letter);
std::string_view to_string(Carrier carrier) noexcept;
/// A carrier with the type that travels, where that is not the plan's: "network", "network in bf16".
std::string carrier_text(const PlanDimension& dimension);
std::string_view to_string(PhaseKind kind) noexcept;

/// One line: "all_reduce 717.7 MB f32: 4x4 by host, ring shared_memory + ring network, 16 chunks, predicted
/// 88.2 ms".
std::string summary(const Plan& plan);
/// A table of the phases for people.
std::string to_text(const Plan& plan);
/// As text that `plan_from_json` reads back to an equal plan. The schema is in topology/README.md.
std::string to_json(const Plan& plan);
/// Throws `corrupt_data` naming `source`, the path inside it, what was found and what was expected: not JSON,
/// unknown, repeated or missing keys, a decomposition or an order that does not fit, numbers out of range,
/// more than 2^24 ranks.
Plan plan_from_json(std::string_view text, std::string_view source);
/// Throws `invalid_argument` unless dimensions, order, chunks and algorithms fit together: an order that is
/// no permutation, one_shot in a ragged dimension of an all-reduce, an algorithm that is none of
/// `algorithms_of`, and so on.
void require_valid(const Plan& plan);

}  // namespace ddl::topology
