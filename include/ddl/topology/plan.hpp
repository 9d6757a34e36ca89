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

/// What the members of a group of one dimension do. A group has p members, and each holds N bytes of the
/// data.
///
/// An all-reduce goes up from the first dimension to the last, then down from the last to the first. A
/// reduce-scatter is the way up alone and an all-gather the way down alone, with ring, halving_doubling or
/// two_shot; a piece of the result belongs to a rank, wherever the rank is in the grid, so a member sends one
/// message for each range of pieces of neighbouring ranks. A reduce is a broadcast backwards. `algorithms_of`
/// lists what a collective can use.
enum class Algorithm : std::uint8_t {
  /// Up: ring reduce-scatter, p-1 steps of N/p bytes; down: ring all-gather, the same (Patarasuk and Yuan,
  /// 2009). Broadcast and reduce: a chain, pipelined in chunks.
  ring,
  /// Like ring, but by exchanges in groups of f for each prime factor f of p: recursive halving and doubling
  /// if p is a power of two (Rabenseifner, 2004). log2 p steps then; the same bytes, most of them between
  /// near members. Not for broadcast and reduce.
  halving_doubling,
  /// Like ring, but each member sends every other one its piece at once: p-1 messages in one step. Broadcast:
  /// the root scatters, and all gather (van de Geijn, 1994); the root sends 2N(p-1)/p bytes, each other
  /// member of its group N(p-2)/p. Reduce: each member reduces its piece, and the root gathers the pieces;
  /// each sends N(p-1)/p. Between the two, the dimensions after it process all pieces in parallel, so that
  /// all NICs of a host carry a part. Not in a ragged first dimension of a broadcast or reduce.
  two_shot,
  /// Up: each member sends all its data to every other one and reduces what it receives: (p-1)N bytes in one
  /// step; down: nothing. The dimensions after it then process the same data p times in parallel. A
  /// decomposition into twos with one_shot everywhere is recursive doubling. Broadcast: the root sends to
  /// every other member. Reduce: every other member sends to the root, which reduces N(p-1) bytes.
  one_shot,
  /// Up: binomial tree to the first member; the other members take no part in the dimensions after it. Down:
  /// binomial tree back. ceil(log2 p) steps of N bytes each way. Broadcast and reduce: a binomial tree.
  tree,
  /// Broadcast only: two binary trees, each for half of the data. Each member is a leaf of at least one of
  /// them and so sends at most N bytes (Sanders, Speck and Traeff, 2009).
  double_tree,
};

/// Families of plans among which the planner chooses; each has a letter of IBM's `-mode`.
enum class Mode : std::uint8_t {
  explore,             ///< p: all plans; the one with the least predicted time. The default.
  rings,               ///< r: rings only.
  nccl,                ///< n: one NCCL ring over all ranks, where NCCL is available.
  nccl_per_dimension,  ///< b: a decomposition along the hosts, each dimension by NCCL where available.
  scatter_gather,      ///< c: reduce-scatter and all-gather in each dimension.
  /// m: over MPI, what an MPI library does that does not know the topology: ranks in their order, one chunk,
  /// no hierarchy (requested dimensions all have the same algorithm). All-reduce: ring; halving_doubling
  /// (Rabenseifner) and recursive doubling (prime factors with one_shot in each) unless the number of ranks
  /// is prime; tree; one_shot between two ranks. Broadcast: ring (a chain), two_shot (van de Geijn), tree.
  mpi,
};

/// What carries a dimension's data.
enum class Carrier : std::uint8_t {
  shared_memory,  ///< Memory that the ranks of a host share.
  cuda_ipc,       ///< Kernels that access the memory of other devices.
  network,        ///< UCX (or MPI in its place), from host memory, or from device memory if UCX handles it.
  mpi,            ///< MPI, between host memories.
  nccl,           ///< NCCL, between devices.
  host_memory,    ///< Between devices: page-locked host memory, and what carries the hosts' data.
};

/// How the groups of one dimension communicate.
struct PlanDimension {
  Algorithm algorithm = Algorithm::ring;     ///< What the members of a group do.
  Carrier carrier = Carrier::shared_memory;  ///< What carries their data.
  /// The type in which sums of f32 travel in this dimension: bf16 or f16; none: f32. Values are rounded
  /// before they are sent, and a result that is sent on is rounded at its rank too, so all ranks end with the
  /// same bits. Not with shared_memory and cuda_ipc, where members read one another's memory.
  std::optional<DataType> wire = {};

  /// Memberwise equality.
  friend bool operator==(const PlanDimension&, const PlanDimension&) = default;
};

/// How one collective is executed, as a value. Collective, decomposition, dimensions, orders and chunks
/// decide the steps; the other members tell people how the plan was chosen.
struct Plan {
  Collective collective = Collective::all_reduce;  ///< Any but barrier.
  std::uint64_t bytes = 0;        ///< The size that it was chosen for; it can be lowered for any count.
  DataType type = DataType::f32;  ///< The element type that it was chosen for.
  Mode mode = Mode::explore;      ///< The family that it was chosen from.
  Decomposition decomposition;    ///< The grid of ranks.
  /// One for each dimension of the decomposition.
  std::vector<PlanDimension> dimensions = {PlanDimension{}};
  std::vector<int> order = {0};  ///< The rank at each position of the grid: a permutation.
  /// More such orders: then each chunk is cut into as many parts as there are orders, and the parts go at
  /// once, each by its own order. Rings over different links so use all of them (NCCL: channels). Up to 15.
  std::vector<std::vector<int>> further_orders = {};
  std::string order_name = "as placed";  ///< "as placed", "by host", ...
  int chunks = 1;                        ///< 1 to 64, pipelined through the phases.

  double predicted_us = 0;       ///< Predicted time of the collective in us; 0: not predicted.
  std::vector<double> phase_us;  ///< us of each phase of `phases_of`, for one chunk and without the others.
  double bound_us = 0;           ///< Lower bound for any plan on this topology: see `PhysicalBound`.
  std::uint64_t topology_hash = 0;  ///< `Topology::hash` of the topology it was predicted for; 0: unknown.
  std::vector<std::string> notes;   ///< Requests that could not be fulfilled, with the reason.

  /// Memberwise equality.
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// What a group does in one phase.
enum class PhaseKind : std::uint8_t {
  reduce_scatter,  ///< Each member ends with its piece of the members' sum.
  all_gather,      ///< Each member ends with all members' pieces.
  reduce,          ///< One member ends with the members' sum.
  broadcast,       ///< All members end with one member's data.
  all_reduce,      ///< Each member ends with the members' sum.
  scatter,         ///< Each member ends with its piece of one member's data.
  gather,          ///< One member ends with all members' pieces.
};

/// One phase of a plan, within one dimension.
struct Phase {
  PhaseKind kind;  ///< What the groups of the dimension do.
  int dimension;   ///< Index into `Plan::dimensions`.

  /// Memberwise equality.
  friend bool operator==(const Phase&, const Phase&) = default;
};

/// The collectives that have plans: all but barrier.
std::span<const Collective> planned_collectives() noexcept;
/// Their names for messages, as in "a, b or c".
std::string planned_names();
/// Whether the collective has a root: broadcast and reduce.
constexpr bool has_root(Collective collective) noexcept {
  return collective == Collective::broadcast || collective == Collective::reduce;
}
/// Whether the buffer consists of one piece per rank: reduce_scatter and all_gather.
constexpr bool has_pieces(Collective collective) noexcept {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather;
}
/// The algorithms that a dimension can use in a collective; none for a barrier.
std::span<const Algorithm> algorithms_of(Collective collective) noexcept;
/// The wire type of the dimensions that have one, else the plan's type.
DataType wire_of(const Plan& plan) noexcept;
/// Number of elements of the plan's type in `Plan::bytes`, rounded up to a count that it can be lowered for:
/// for reduce_scatter and all_gather a multiple of the number of ranks.
std::uint64_t elements_of(const Plan& plan);

/// Whether every dimension has a carrier between host memories: shared_memory, network or mpi.
bool is_for_hosts(const Plan& plan) noexcept;
/// Whether every dimension has a carrier between devices: cuda_ipc, nccl, network or host_memory.
bool is_for_devices(const Plan& plan) noexcept;

/// The phases of a valid plan, in the order in which a chunk passes through them. Dimensions of size 1 have
/// none. All-reduce: up, then down. Reduce-scatter: up. All-gather: down. Broadcast: down; a dimension with
/// two_shot scatters on the way up and gathers on the way down. Reduce: up; a dimension with two_shot reduces
/// and scatters on the way up, and gathers on the way down.
std::vector<Phase> phases_of(const Plan& plan);

/// A 64-bit hash (FNV-1a) of the members that decide the steps, the same on every machine. Ranks compare it
/// before they use a plan.
std::uint64_t hash(const Plan& plan);

/// "ring", "halving_doubling", ...
std::string_view to_string(Algorithm algorithm) noexcept;
/// "explore", "rings", ...
std::string_view to_string(Mode mode) noexcept;
/// The letter of IBM's `-mode`: 'p', 'r', ...
char letter_of(Mode mode) noexcept;
/// Reads such a letter. Throws `invalid_argument`, naming the letters, for other text.
Mode mode_from_letter(std::string_view letter);
/// "shared_memory", "cuda_ipc", ...
std::string_view to_string(Carrier carrier) noexcept;
/// The carrier of a dimension and its wire type, if it has one: "network", "network in bf16".
std::string carrier_text(const PlanDimension& dimension);
/// "reduce_scatter", "all_gather", ...
std::string_view to_string(PhaseKind kind) noexcept;

/// The plan in one line: "all_reduce 717.7 MB f32: 4x4 by host, ring shared_memory + ring network, 16 chunks,
/// predicted 88.2 ms".
std::string summary(const Plan& plan);
/// The plan as a table of its phases, for people.
std::string to_text(const Plan& plan);
/// JSON text that `plan_from_json` reads back to an equal plan. The schema is in topology/README.md.
std::string to_json(const Plan& plan);
/// Reads what `to_json` writes. `source`: what messages call the text. Throws `corrupt_data`, naming
/// `source`, the path inside it, what was found and what was expected, for text that is not JSON, unknown,
/// repeated or missing keys, a decomposition or an order that does not fit, numbers out of range, and more
/// than 2^24 ranks.
Plan plan_from_json(std::string_view text, std::string_view source);
/// Throws `invalid_argument` unless the members that decide the steps fit together: for instance for an order
/// that is no permutation, one_shot in a ragged dimension of an all-reduce, an algorithm that is not in
/// `algorithms_of`, a wire where data is not sent as f32 sums, and chunks outside of 1 to 64.
void require_valid(const Plan& plan);

}  // namespace ddl::topology
