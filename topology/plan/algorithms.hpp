#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/plan.hpp"

namespace ddl::topology {

/// Into which a plan may cut its data.
inline constexpr int most_chunks = 64;
inline constexpr std::size_t most_further_orders = 15;  // of a plan

/// Properties of an algorithm that the planner and tools use besides its messages.
struct AlgorithmTraits {
  std::string_view name;
  bool scatters = false;    ///< See `topology::scatters`.
  bool leaves_one = false;  ///< In an all-reduce, lets only the first member take part in later dimensions.
  bool is_ring = false;     ///< A ring; in a broadcast or reduce, a chain.
  bool is_direct = false;   ///< Each member exchanges with all others at once.
  bool is_staged = false;   ///< Exchanges in stages, one for each prime factor of the size.
  bool is_tree = false;     ///< Data moves along trees: a member forwards all that it receives.
};
const AlgorithmTraits& traits_of(Algorithm algorithm) noexcept;
/// Whether a dimension leaves each member with a share of the data, with which later dimensions go on.
bool scatters(Collective collective, Algorithm algorithm) noexcept;
/// Whether an algorithm works in a ragged first dimension.
bool takes_ragged(Collective collective, Algorithm algorithm) noexcept;
std::span<const Algorithm> all_algorithms() noexcept;

/// The phases of a dimension: before those of later dimensions ("up"), and after them ("down").
struct DimensionPhases {
  std::vector<PhaseKind> up;
  std::vector<PhaseKind> down;
};
DimensionPhases dimension_phases(Collective collective, Algorithm algorithm);

/// Pieces [first, last) of a group's range, sent to or received from a peer.
struct Message {
  int peer;  ///< The peer's index in the group.
  int first;
  int last;
};

/// The messages of one phase within a group of `size` members. Algorithms are defined here alone: lowering
/// turns these messages into steps, the planner into loads of links. Member 0 is the root of a broadcast or
/// reduce. The group's range is cut into `pieces()` equal pieces.
///
/// Rounds follow one another. Both ends list a message in the same round; messages of a round are
/// independent.
class GroupPattern {
 public:
  /// `apart`: of a broadcast's all-gather, a group in which no member has had all data, unlike the root's.
  GroupPattern(Collective collective, Algorithm algorithm, PhaseKind kind, int size, bool apart = false);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int pieces() const noexcept { return pieces_; }
  [[nodiscard]] int rounds() const noexcept { return rounds_; }
  /// Whether the messages of all rounds are between the same members and of the same number of pieces.
  [[nodiscard]] bool is_repeated() const noexcept { return shape_ == Shape::ring; }
  /// Whether receivers add what they receive to their own data.
  [[nodiscard]] bool reduces() const noexcept { return reduces_; }

  /// The members that may send in a round: every `step`-th of [first, end).
  struct Members {
    int first;
    int end;
    int step = 1;
  };
  [[nodiscard]] Members senders(int round) const;
  /// Replaces `messages` by what a member sends or receives in a round. In an exchange, members begin with
  /// different peers; in a common order, all of them would send to the same member first.
  void sends(int round, int member, std::vector<Message>& messages) const;
  void receives(int round, int member, std::vector<Message>& messages) const;

 private:
  enum class Shape { ring, chain, exchange, gather_scattered, to_root, from_root, binomial, double_tree };
  /// An exchange between the members whose indices differ in one digit.
  struct Stage {
    int factor;
    int stride;  ///< Distance between the members.
    int run;     ///< Pieces that each member still holds after the stage.
  };

  [[nodiscard]] int tree_bit(int round) const { return 1 << (reduces_ ? round : rounds_ - 1 - round); }
  [[nodiscard]] Message between(int round, int from, int to, int peer) const;
  void exchange(int round, int member, int direction, std::vector<Message>& messages) const;
  void tree(int round, int member, bool sends, std::vector<Message>& messages) const;

  PhaseKind kind_;
  int size_;
  Shape shape_;
  int pieces_ = 1;
  int rounds_ = 1;
  bool reduces_;
  std::vector<Stage> stages_;
};

/// The piece that a reduce-scatter leaves `member` with. It is the member's own number, except with
/// halving_doubling: there the digits of that number (one for each prime factor, the smallest factor's digit
/// the lowest) are reversed, so that near members exchange the most and ranges stay contiguous.
int piece_of_member(Algorithm algorithm, int size, int member);
/// The inverse of `piece_of_member`.
int member_of_piece(Algorithm algorithm, int size, int piece);

/// The prime factors of a size, ascending.
std::vector<int> prime_factors(int size);
/// The sizes of a dimension's exchanges: the prime factors if the algorithm is staged, else `size` alone.
std::vector<int> stage_sizes(Algorithm algorithm, int size);
/// A dimension's size and algorithm. `add_same_steps` replaces halving_doubling by exchanges with the same
/// steps, so that shapes with equal entries have equal steps.
struct SizedAlgorithm {
  int size;
  Algorithm algorithm;

  friend auto operator<=>(const SizedAlgorithm&, const SizedAlgorithm&) = default;
};
void add_same_steps(Algorithm algorithm, int size, std::vector<SizedAlgorithm>& steps);

/// Figures of a phase that do not depend on the topology.
struct PhaseFigures {
  std::string members;        ///< Of a group: "4", or "1-4" if group sizes differ.
  int rounds = 0;             ///< Of one chunk; rounds follow one another.
  double bytes_per_rank = 0;  ///< All chunks, of the rank that sends most.
};

PhaseFigures figures_of(const Plan& plan, const Phase& phase);

/// The number of runs of consecutive ranks among those at positions 0, `stride`, 2 * `stride`, ... of
/// `order`. In a reduce_scatter or all_gather, that many ranges hold their pieces of one chunk.
int neighbour_runs(std::span<const int> order, int stride);

}  // namespace ddl::topology
