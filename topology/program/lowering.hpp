#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"
#include "topology/plan/algorithms.hpp"

// Shared by all lowerings: ranges, groups of ranks, and the list of steps that lowerings write.
namespace ddl::topology {

struct Range {
  std::size_t begin;
  std::size_t end;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool empty() const noexcept { return begin == end; }
};

/// Cuts `whole` into `parts` pieces whose sizes differ by at most one, the longer ones first.
class Partition {
 public:
  Partition(Range whole, int parts)
      : origin_(whole.begin),
        parts_(as_index(parts)),
        base_(whole.size() / parts_),
        longer_(whole.size() % parts_) {}

  /// Where piece `index` starts; `index` may be the number of parts.
  [[nodiscard]] std::size_t boundary(int index) const {
    const auto i = as_index(index);
    return origin_ + base_ * i + std::min(i, longer_);
  }
  [[nodiscard]] Range piece(int index) const { return {boundary(index), boundary(index + 1)}; }
  /// Pieces [first, last).
  [[nodiscard]] Range pieces(int first, int last) const { return {boundary(first), boundary(last)}; }
  /// The piece that holds `element`, which must lie in the whole range.
  [[nodiscard]] int piece_of(std::size_t element) const {
    const std::size_t offset = element - origin_;
    const std::size_t in_longer = longer_ * (base_ + 1);
    const std::size_t index =
        offset < in_longer ? offset / (base_ + 1) : longer_ + (offset - in_longer) / base_;
    return static_cast<int>(index);
  }

 private:
  std::size_t origin_;
  std::size_t parts_;
  std::size_t base_;
  std::size_t longer_;
};

/// What a group divides among its members, as numbered pieces: a reduce-scatter leaves each member with one
/// piece, an all-gather starts from one. The algorithm defines which piece is whose (`piece_of_member`).
class Shares {
 public:
  virtual ~Shares() = default;
  /// The ranges of pieces [first, last): not empty, ascending, not adjacent. Valid until the next call.
  virtual std::span<const Range> pieces(int first, int last) = 0;
  std::span<const Range> piece(int index) { return pieces(index, index + 1); }
};

/// A range cut into equal pieces.
class EqualShares final : public Shares {
 public:
  EqualShares(Range whole, int size) : pieces_(whole, size) {}

  std::span<const Range> pieces(int first, int last) override {
    found_[0] = pieces_.pieces(first, last);
    return std::span(found_).first(found_[0].empty() ? 0 : 1);
  }

 private:
  Partition pieces_;
  std::array<Range, 1> found_{};
};

/// The ranks that work together in one dimension, as seen by one of them.
struct Group {
  int size;
  int mine;                         ///< This rank's index.
  std::function<int(int)> rank_at;  ///< The rank at an index of [0, size).
  bool apart = false;               ///< See `GroupPattern`.
};

/// A rank's place in the grid.
struct Place {
  int group = 0;           ///< The group of the first dimension.
  int member = 0;          ///< Index in that group.
  std::vector<int> outer;  ///< Coordinates in the second and later dimensions.
};

/// Finds ranks by their coordinates. Refers to the constructor's arguments.
class Grid {
 public:
  Grid(const Decomposition& decomposition, std::span<const int> order);

  [[nodiscard]] Place place(int position) const;
  [[nodiscard]] int group_size(int group) const { return decomposition_->group_size(group); }
  /// The distinct sizes of a dimension's groups.
  [[nodiscard]] std::span<const int> sizes(int dimension) const;
  [[nodiscard]] bool ragged() const { return decomposition_->ragged(); }
  /// The rank at index `member` of a group of the first dimension.
  [[nodiscard]] int rank_at(int group, int member) const {
    return order_[as_index(decomposition_->group_begin(group) + member)];
  }
  /// Groups of the first dimension along a later one: `first` and `size` - 1 more, `stride` apart.
  struct Line {
    int first;
    int stride;
    int size;
  };
  /// The line through a place.
  [[nodiscard]] Line line(const Place& place, int dimension) const;

  /// The group of the first dimension that holds a place.
  [[nodiscard]] Group first_dimension(const Place& place) const;
  /// The group of a later dimension that holds a place. `member_in(g)` is the member that takes part for
  /// group g of the first dimension; the result refers to `member_in`.
  [[nodiscard]] Group later_dimension(const Place& place, int dimension,
                                      const std::function<int(int)>& member_in) const;
  /// The same group with the member at `index` as its first one.
  static Group counted_from(Group group, int index);

 private:
  const Decomposition* decomposition_;
  std::span<const int> order_;
  std::vector<int> group_sizes_;
};

/// Chunks take turns in this many scratch areas. More would only let more chunks share a phase.
constexpr std::size_t chunks_in_scratch = 4;

/// Collects one rank's steps, chunk by chunk and phase by phase, and sorts them by round. Skips empty ranges.
class StepList {
 public:
  StepList(std::size_t count, DataType wire) : count_(count), wire_(wire) {}

  /// Starts a chunk, or the next part of the same chunk, which has scratch of its own.
  void start_part(int chunk);
  /// Starts a phase: rounds count from the chunk's round `first_round`, and scratch is free again.
  void start_phase(int phase, int first_round);

  void send(int round, int peer, Range range) { add(StepKind::send, round, peer, range); }
  void send(int round, int peer, std::span<const Range> ranges) {
    for (const Range& range : ranges) send(round, peer, range);
  }
  void receive(int round, int peer, Range range) { add(StepKind::receive, round, peer, range); }
  void receive(int round, int peer, std::span<const Range> ranges) {
    for (const Range& range : ranges) receive(round, peer, range);
  }
  void receive_reduce(int round, int peer, Range range) { add(StepKind::receive_reduce, round, peer, range); }
  /// target = target op source
  void reduce(int round, Range target, std::size_t source) {
    add(StepKind::reduce, round, -1, target, source);
  }
  void copy(int round, Range target, std::size_t source) { add(StepKind::copy, round, -1, target, source); }
  void finish(int round, Range range) { add(StepKind::finish, round, -1, range); }
  /// Rounds the ranges to the plan's wire, each with a residual of its own.
  void to_wire(int round, std::span<const Range> ranges);
  /// Whether messages added from here on are narrow.
  void set_narrow(bool narrow) noexcept { narrow_ = narrow; }
  /// Scratch for `size` elements. The chunk's other phases use the same memory, and so may other chunks.
  Range take_scratch(std::size_t size);

  /// The program: steps by round + chunk, then by chunk, then in the order in which they were added.
  Program in_order() &&;

 private:
  void add(StepKind kind, int round, int peer, Range range, std::size_t source = 0);

  std::size_t count_;
  DataType wire_;
  std::uint8_t chunk_ = 0;
  std::uint8_t phase_ = 0;
  int first_round_ = 0;
  std::size_t first_scratch_ = 0;  // of the part of the chunk
  std::size_t end_scratch_ = 0;    // of the parts so far
  std::size_t scratch_taken_ = 0;
  std::size_t scratch_ = 0;  // of one chunk
  bool narrow_ = false;
  std::size_t residual_ = 0;
  std::vector<Step> steps_;
  std::vector<std::uint32_t> times_;  // by step
};

/// A phase and its first round in a chunk, which is the same for all groups.
struct TimedPhase {
  Phase phase;
  Algorithm algorithm;
  Carrier carrier;
  int first_round;
  bool narrow = false;        ///< Messages travel in the plan's wire; sums are rounded before they are sent.
  bool rounds_first = false;  ///< The first narrow phase on the way down: owners round results.
  std::vector<GroupPattern> patterns = {};  ///< One for each size of its groups,
  std::vector<GroupPattern> apart = {};     ///< and for `Group::apart`, in a broadcast's all-gather.

  [[nodiscard]] const GroupPattern& pattern(const Group& group) const;
  /// Whether data that several members send at once is reduced over shared memory: by one receive_reduce
  /// after the other, in one pass without scratch. If not, it goes to scratch and is added in a fixed order.
  [[nodiscard]] bool in_one_pass() const { return carrier == Carrier::shared_memory; }
};

/// Adds a group member's steps of a phase, over `shares` or over a range that all members hold. `finishes`:
/// an all_reduce phase, which is the last one on the way up, also finishes its sums.
void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Shares& shares);
void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Range range,
                 bool finishes = false);

/// A plan with its phases laid out in rounds, for all ranks in one of its orders. Refers to the plan.
struct PlanInRounds {
  PlanInRounds(const Plan& of, const std::vector<int>& order);

  [[nodiscard]] Place place(int rank) const { return grid.place(position_of[as_index(rank)]); }

  const Plan* plan;
  Grid grid;
  std::vector<int> position_of;  ///< By rank.
  std::vector<TimedPhase> phases;
  int rounds = 0;  ///< Of one chunk.
};

/// Adds the steps of the rank at `place` for one chunk.
void lower_all_reduce(const PlanInRounds& plan, const Place& place, Range chunk, StepList& steps);
/// The same for a broadcast or reduce.
void lower_rooted(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                  StepList& steps);

/// The same for all chunks of a reduce_scatter or all_gather of `count` elements. `orders`: the plan in each
/// of its orders.
void lower_pieces(std::span<const PlanInRounds> orders, int rank, std::size_t count, StepList& steps);

}  // namespace ddl::topology
