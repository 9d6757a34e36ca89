#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ddl/topology/plan.hpp"

namespace ddl::topology {

/// What planner and tools know of an algorithm besides its messages.
struct AlgorithmTraits {
  std::string_view name;
  bool scatters = false;     ///< In an all-reduce: leaves each member with a share of the sums.
  bool leaves_one = false;   ///< In an all-reduce: only the first member takes part in later dimensions.
  bool is_ring = false;      ///< Or a chain, in a broadcast or reduce.
  bool is_direct = false;    ///< A member exchanges with all others at once.
  bool is_staged = false;    ///< Exchanges of one prime factor of the size after the other.
  bool is_tree = false;      ///< Everything that a member sends is the whole of what it has.
  bool takes_ragged = true;  ///< Works in the ragged first dimension of an all-reduce.
};
const AlgorithmTraits& traits_of(Algorithm algorithm) noexcept;
std::span<const Algorithm> all_algorithms() noexcept;

/// What a dimension does in a collective: before the dimensions after it ("up"), and after them ("down").
struct DimensionPhases {
  std::vector<PhaseKind> up;
  std::vector<PhaseKind> down;
};
DimensionPhases dimension_phases(Collective collective, Algorithm algorithm);

/// Pieces [first, last) of a group's range to or from another member.
struct Message {
  int peer;  ///< Index in the group.
  int first;
  int last;
};

/// The messages of one phase within a group of `size` members: the one place that says what an algorithm
/// does. Lowering turns them into steps, the planner into loads of links. Member 0 is the root of a broadcast
/// or reduce. The group's range is cut into `pieces()` equal pieces.
///
/// Rounds follow one another; both ends have a message in the same round, and no message of a round waits for
/// another one of it.
class GroupPattern {
 public:
  GroupPattern(Collective collective, Algorithm algorithm, PhaseKind kind, int size);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int pieces() const noexcept { return pieces_; }
  [[nodiscard]] int rounds() const noexcept { return rounds_; }
  /// Whether all rounds have messages between the same members, of the same number of pieces.
  [[nodiscard]] bool is_repeated() const noexcept { return shape_ == Shape::ring; }
  /// Whether receivers add what they get to what they have.
  [[nodiscard]] bool reduces() const noexcept { return reduces_; }

  /// The members that may send in a round: every `step`-th one of [first, end).
  struct Members {
    int first;
    int end;
    int step = 1;
  };
  [[nodiscard]] Members senders(int round) const;
  /// What a member sends or receives in a round; replaces `messages`. In an exchange, members begin with
  /// different peers: the same order everywhere would make all of them send to one member first.
  void sends(int round, int member, std::vector<Message>& messages) const;
  void receives(int round, int member, std::vector<Message>& messages) const;

 private:
  enum class Shape { ring, chain, exchange, gather_scattered, to_root, from_root, binomial, double_tree };
  /// An exchange between the members that differ in one digit of their index.
  struct Stage {
    int factor;
    int stride;  ///< Between members.
    int run;     ///< Pieces that each member is left with.
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

/// Messages of all members in all rounds.
double messages_of(const GroupPattern& pattern);

/// The piece that a reduce-scatter leaves `member` with. The member's own number except with
/// halving_doubling, where the digits of the number (one for each prime factor, the smallest factor's the
/// least) are read backwards: so near members exchange the most, and ranges stay whole.
int piece_of_member(Algorithm algorithm, int size, int member);
/// Its inverse.
int member_of_piece(Algorithm algorithm, int size, int piece);

/// The prime factors of a size, ascending.
std::vector<int> prime_factors(int size);
/// The sizes of the exchanges that a dimension consists of: prime factors if it is staged, else the size.
std::vector<int> stage_sizes(Algorithm algorithm, int size);
/// As PlanDimension's, but for halving_doubling the exchanges that do the same. Shapes with equal entries
/// have the same steps.
struct SizedAlgorithm {
  int size;
  Algorithm algorithm;

  friend auto operator<=>(const SizedAlgorithm&, const SizedAlgorithm&) = default;
};
void add_same_steps(Algorithm algorithm, int size, std::vector<SizedAlgorithm>& steps);

}  // namespace ddl::topology
